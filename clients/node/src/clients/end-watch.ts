/** How often a client is looked at that tells nobody of its end. */
const LOOK_MS = 100;

/** Learns that the program has ended a client which emits no event for it, while anything of ours is open beside it. */
export class EndWatch {
  readonly #listeners: (() => void)[] = [];
  #wasOpen: boolean;
  #hasEnded = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly client: { readonly isOpen: boolean }) {
    this.#wasOpen = client.isOpen;
  }

  get hasEnded(): boolean {
    this.check();
    return this.#hasEnded;
  }

  onEnd(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** From now on. It keeps no process alive. */
  watch(): void {
    this.#timer ??= setInterval(() => this.check(), LOOK_MS).unref();
  }

  check(): void {
    const { isOpen } = this.client;
    if (isOpen) {
      this.#wasOpen = true;
      this.#hasEnded = false;
    } else if (this.#wasOpen && !this.#hasEnded) {
      this.#hasEnded = true;
      clearInterval(this.#timer);
      this.#timer = undefined;
      for (const listener of this.#listeners) listener();
    }
  }
}
