// The interface of node-redlock 4 over this package: as much as its tests use, and only for them.
const { EventEmitter } = require("node:events");
const Bluebird = require("bluebird");
const redlockClient = require("redis-lock-client");

class LockError extends Error {
  constructor(message, attempts) {
    super(message);
    this.name = "LockError";
    this.attempts = attempts;
  }
}

class Lock {
  constructor(redlock, resource, lock, retryCount) {
    this.redlock = redlock;
    this.resource = resource;
    this.inner = lock;
    this.value = lock.value;
    this.expiration = lock.expiration;
    this.attempts = lock.attempts.length;
    this.attemptsRemaining = retryCount - this.attempts;
  }

  unlock(callback) {
    return this.redlock.unlock(this, callback);
  }

  extend(ttl, callback) {
    return this.redlock.extend(this, ttl, callback);
  }
}

class Redlock extends EventEmitter {
  static Lock = Lock;
  static LockError = LockError;

  constructor(clients, options = {}) {
    super();
    this.servers = clients;
    this.inner = new redlockClient.Redlock([adapt(clients[0])], options);
    // Version 4 does not take a refusal for an error.
    this.inner.on("error", (error) => {
      if (!(error instanceof redlockClient.ResourceLockedError)) this.emit("clientError", error);
    });
  }

  lock(resource, ttl, callback) {
    return this.lockWithOptions(resource, ttl, {}, callback);
  }

  lockWithOptions(resource, ttl, options, callback) {
    const resources = [].concat(resource);
    const { retryCount = this.inner.settings.retryCount } = options;
    const acquired = this.inner.acquire(resources, ttl, options).then(
      (lock) => new Lock(this, resources, lock, retryCount),
      async (error) => {
        // Version 4 gives up when all have answered.
        await Promise.all(error.attempts);
        throw new LockError(error.message, error.attempts.length);
      },
    );
    return Bluebird.resolve(acquired).nodeify(callback);
  }

  unlock(lock, callback) {
    lock.expiration = 0;
    const released = this.inner.release(this.#innerLock(lock));
    return Bluebird.resolve(released).return().nodeify(callback);
  }

  extend(lock, ttl, callback) {
    if (lock.expiration < Date.now()) {
      return Bluebird.reject(new LockError("the lock has already expired", 0)).nodeify(callback);
    }
    const extended = this.inner.extend(this.#innerLock(lock), ttl).then(({ expiration }) => {
      return Object.assign(lock, { expiration });
    });
    return Bluebird.resolve(extended).nodeify(callback);
  }

  disposer(resource, ttl, errorHandler = () => {}) {
    return this.lock(resource, ttl).disposer((lock) => lock.unlock().catch(errorHandler));
  }

  quit(callback) {
    return Bluebird.map(this.servers, (client) => client.quit()).nodeify(callback);
  }

  /** The tests give a lock another resource, to see its release fail. */
  #innerLock({ inner, resource }) {
    const resources = [].concat(resource);
    if (String(resources) === String(inner.resources)) return inner;
    const request = { ...inner.request, resources, keys: resources };
    return new redlockClient.Lock(this.inner, request, [], 0, inner.lease, 0);
  }
}

/** node_redis 3, with callbacks, as the package knows node-redis. */
function adapt(client) {
  // ioredis has `send_command` too, but only node_redis has no `call`.
  if ("call" in client) return client;
  const promised = (call) =>
    new Promise((resolve, reject) => call((e, reply) => (e ? reject(e) : resolve(reply))));
  return {
    get isReady() {
      return client.ready;
    },
    get isOpen() {
      return client.connected || !client.closing;
    },
    sendCommand: ([name, ...args]) => promised((done) => client.send_command(name, args, done)),
    duplicate: () => adapt(client.duplicate({ retry_strategy: () => undefined })),
    connect: () => client.ready || promised((done) => client.once("error", done).once("ready", done)),
    subscribe: () => Promise.reject(new Error("not used")),
    destroy: () => client.end(true),
    close: () => promised((done) => client.quit(done)),
    on: (event, listener) => client.on(event, listener),
  };
}

module.exports = Redlock;
