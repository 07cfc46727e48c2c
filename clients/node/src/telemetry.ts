const NAME = "redis-lock-client";
let instruments: ReturnType<typeof create> | undefined;

function create({ metrics, trace }: typeof import("@opentelemetry/api")) {
  const meter = metrics.getMeter(NAME);
  const duration = (what: string, description: string) =>
    meter.createHistogram(`redis_lock.${what}.duration`, { unit: "s", description });
  return {
    tracer: trace.getTracer(NAME),
    wait: duration("wait", "How long acquires waited"),
    hold: duration("hold", "How long locks were held"),
    losses: meter.createCounter("redis_lock.losses", { unit: "{hold}", description: "Holds that were lost" }),
  };
}

/** Resolves when it is known whether the program has the package @opentelemetry/api. */
export const loaded = import("@opentelemetry/api")
  .then((api) => void (instruments = create(api)))
  .catch(() => {});

/**
 * Measures a wait or a hold. Returns what is called at its end: of a wait with whether the lock was granted, of a hold with whether it was
 * released, and not lost. Without the package it does nothing.
 */
export function measure(what: "wait" | "hold", resources: readonly string[]) {
  if (instruments === undefined) return () => {};
  const { tracer, losses, [what]: histogram } = instruments;
  const start = performance.now();
  const attributes = { "redis_lock.name": resources.join(" ") };
  const span = tracer.startSpan(`redis_lock.${what}`, { attributes });
  let isOver = false;
  return (isGood: boolean, error?: unknown) => {
    if (isOver) return;
    isOver = true;
    const outcome = what === "wait" ? { "redis_lock.granted": isGood } : { "redis_lock.lost": !isGood };
    histogram.record((performance.now() - start) / 1000, { ...attributes, ...outcome });
    if (what === "hold" && !isGood) losses.add(1, attributes);
    span.setAttributes(outcome);
    if (error instanceof Error) span.recordException(error);
    span.end();
  };
}
