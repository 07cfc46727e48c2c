import type { Counter, Histogram, Span, Tracer } from "@opentelemetry/api";

/** The instruments, if the program has the package @opentelemetry/api. */
interface Instruments {
  readonly tracer: Tracer;
  readonly waits: Histogram;
  readonly holds: Histogram;
  readonly losses: Counter;
}

const NAME = "redis-lock-client";
let instruments: Instruments | undefined;

/** Resolves when it is known whether the package is there. */
export const loaded: Promise<void> = import("@opentelemetry/api").then(
  ({ metrics, trace }) => {
    const meter = metrics.getMeter(NAME);
    const seconds = (description: string) => ({ unit: "s", description });
    instruments = {
      tracer: trace.getTracer(NAME),
      waits: meter.createHistogram("redis_lock.wait.duration", seconds("How long acquires waited")),
      holds: meter.createHistogram("redis_lock.hold.duration", seconds("How long locks were held")),
      losses: meter.createCounter("redis_lock.losses", {
        unit: "{hold}",
        description: "Holds that were lost",
      }),
    };
  },
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
    const histogram = isWait ? instruments.waits : instruments.holds;
    histogram.record((performance.now() - this.#start) / 1000, attributes);
    if (!isWait && !isGood) instruments.losses.add(1, this.#attributes);
    this.#span?.setAttributes(outcome);
    if (error instanceof Error) this.#span?.recordException(error);
    this.#span?.end();
  }
}
