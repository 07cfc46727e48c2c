// Locks for NestJS: a module that provides one `Redlock` for the application, and a decorator for methods.
import "reflect-metadata";
import { type DynamicModule, Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { type Client, Redlock, type Settings } from "redis-lock-client";

/** For a factory that needs other providers, as a service with the configuration. */
export interface RedlockModuleOptions {
  inject?: any[];
  useFactory(...dependencies: any[]): Client | Promise<Client>;
  settings?: Partial<Settings>;
}

@Module({})
export class RedlockModule implements OnApplicationShutdown {
  constructor(@Inject(Redlock) private readonly redlock: Redlock) {}

  static forRoot({ inject = [], useFactory, settings = {} }: RedlockModuleOptions): DynamicModule {
    const redlock = {
      provide: Redlock,
      inject,
      useFactory: async (...dependencies: unknown[]) =>
        new Redlock([await useFactory(...dependencies)], settings),
    };
    return { module: RedlockModule, global: true, providers: [redlock], exports: [Redlock] };
  }

  /** Gives up all places in queues. Locks that are held end with their lease. */
  async onApplicationShutdown(): Promise<void> {
    await this.redlock.quit();
  }
}

/** What has the `Redlock` injected, under this name. */
export interface HasRedlock {
  readonly redlock: Redlock;
}

/**
 * Runs a method under the lock that `resourceOf` names by the arguments of the call. The method is not told when the lock is lost: the
 * call rejects when it has ended. One that is to stop at once calls `redlock.using` itself, for its signal.
 */
export function Locked<A extends unknown[]>(
  resourceOf: (...args: A) => string,
  duration: number,
  settings: Partial<Settings> = {},
) {
  return (
    _: object,
    __: string | symbol,
    descriptor: TypedPropertyDescriptor<(...args: A) => Promise<any>>,
  ) => {
    const method = descriptor.value!;
    const wrapper = function (this: unknown, ...args: A) {
      const { redlock } = this as HasRedlock;
      return redlock.using([resourceOf(...args)], duration, settings, async (signal) => {
        const result = await method.apply(this, args);
        signal.throwIfAborted();
        return result;
      });
    };
    // Of the decorators below this one: those of Nest write to the method, and read from what is in its place.
    for (const key of Reflect.getMetadataKeys(method))
      Reflect.defineMetadata(key, Reflect.getMetadata(key, method), wrapper);
    descriptor.value = Object.defineProperty(wrapper, "name", { value: method.name, configurable: true });
  };
}
