import type { Span } from "@opentelemetry/api";

const NAME = "redis-lock-client";
let instruments: ReturnType<typeof create> | undefined;

function create({ metrics, trace }: typeof import("@opentelemetry/api")) {
  const meter = metrics.getMeter(NAME);
  const seconds = (description: string) => ({ unit: "s", description });
  const losses = { unit: "{hold}", description: "Holds that were lost" };
  return {
    tracer: trace.getTracer(NAME),
    wait: meter.createHistogram("redis_lock.wait.duration", seconds("How long acquires waited")),
    hold: meter.createHistogram("redis_lock.hold.duration", seconds("How long locks were held")),
    losses: meter.createCounter("redis_lock.losses", losses),
  };
}

/** Resolves when it is known whether the program has the package @opentelemetry/api. */
export const loaded: Promise<void> = import("@opentelemetry/api").then(
  (api) => void (instruments = create(api)),
  () => {},
);

/** A wait or a hold while it lasts. Without the package it does nothing. */
export class Measured {
  readonly #start = performance.now();
  readonly #attributes: { "redis_lock.name": string };
  readonly #span: Span | undefined;
  #isOver = false;

  constructor(
    private readonly what: "wait" | "hold",
    resources: readonly string[],
  ) {
    this.#attributes = { "redis_lock.name": resources.join(" ") };
    this.#span = instruments?.tracer.startSpan(`redis_lock.${what}`, { attributes: this.#attributes });
  }

  /** Of a wait: whether the lock was granted. Of a hold: whether it was released, and not lost. */
  end(isGood: boolean, error?: unknown): void {
    if (this.#isOver || instruments === undefined) return;
    this.#isOver = true;
    const isWait = this.what === "wait";
    const outcome = isWait ? { "redis_lock.granted": isGood } : { "redis_lock.lost": !isGood };
    const attributes = { ...this.#attributes, ...outcome };
    instruments[this.what].record((performance.now() - this.#start) / 1000, attributes);
    if (!isWait && !isGood) instruments.losses.add(1, this.#attributes);
    this.#span?.setAttributes(outcome);
    if (error instanceof Error) this.#span?.recordException(error);
    this.#span?.end();
  }
}
