using System;
using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using StackExchange.Redis;

/// <summary>Locks on a server with the module redis-lock. One object serves a whole process.</summary>
public sealed class RedisLocks
{
    // The place of a waiter outlives a lost message by the grace, and it asks again well before that.
    private const long GraceMs = 5000;
    private const int SliceMs = 2000;
    private const int PollMs = 100;

    private readonly IDatabase db;
    private readonly bool notify;
    private readonly string channel = "redis-lock:" + Guid.NewGuid().ToString("N");
    private readonly ConcurrentDictionary<string, SemaphoreSlim> waiting =
        new ConcurrentDictionary<string, SemaphoreSlim>();

    private RedisLocks(IDatabase db, bool notify)
    {
        this.db = db;
        this.notify = notify;
    }

    /// <summary>Subscribes, and returns when the server has confirmed it.</summary>
    /// <param name="notify">False in a cluster, which needs a shard channel per slot: a waiter then polls.</param>
    public static async Task<RedisLocks> OpenAsync(IConnectionMultiplexer redis, bool notify = true)
    {
        var locks = new RedisLocks(redis.GetDatabase(), notify);
        if (notify)
        {
            await redis.GetSubscriber().SubscribeAsync(
                RedisChannel.Literal(locks.channel), (_, message) => locks.Heard((byte[])message)).ConfigureAwait(false);
        }
        return locks;
    }

    /// <summary>Waits for the lock. Null if it is not granted within the patience.</summary>
    public async Task<RedisHold> AcquireAsync(
        string key, TimeSpan ttl, TimeSpan patience, CancellationToken cancel = default(CancellationToken))
    {
        var token = Guid.NewGuid().ToString();
        var since = Stopwatch.StartNew();
        var heard = new SemaphoreSlim(0);
        waiting[token] = heard;
        var granted = false;
        try
        {
            while (true)
            {
                cancel.ThrowIfCancellationRequested();
                var asked = Stopwatch.StartNew();
                var fence = await AskAsync(key, token, ttl, since.Elapsed < patience).ConfigureAwait(false);
                if (fence > 0 && asked.Elapsed < Lease(ttl))
                {
                    granted = true;
                    return new RedisHold(this, key, token, ttl, fence, asked);
                }
                var left = patience - since.Elapsed;
                if (left <= TimeSpan.Zero) return null;
                // A message wakes it. Without one it asks again, because a message can be lost.
                var slice = (int)Math.Min(left.TotalMilliseconds + 1, notify ? SliceMs : PollMs);
                await heard.WaitAsync(slice, cancel).ConfigureAwait(false);
            }
        }
        finally
        {
            waiting.TryRemove(token, out heard);
            // It also ends a hold whose reply was lost.
            if (!granted) await ReleaseAsync(key, token).ConfigureAwait(false);
        }
    }

    /// <summary>The fence, or 0 while others hold the lock. A lost reply counts as that: the token asks again.</summary>
    private async Task<long> AskAsync(string key, string token, TimeSpan ttl, bool more)
    {
        // Keys are given as RedisKey, by which a cluster is routed.
        var words = notify
            ? new object[] { (RedisKey)key, token, Ms(ttl), "NOTIFY", 0, channel, "KEEP", GraceMs }
            : new object[] { (RedisKey)key, token, Ms(ttl), "KEEP", GraceMs };
        try
        {
            var reply = await db.ExecuteAsync("LOCK.ACQUIRE", words, CommandFlags.DemandMaster).ConfigureAwait(false);
            long fence;
            var text = reply.IsNull ? "" : (string)reply;
            return long.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out fence) ? fence : 0;
        }
        catch (Exception e) when (more && IsPassing(e))
        {
            return 0;
        }
    }

    /// <summary>True if the token held the lock until now.</summary>
    internal async Task<bool> ReleaseAsync(string key, string token)
    {
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                var words = new object[] { (RedisKey)key, token };
                return (long)await db.ExecuteAsync("LOCK.RELEASE", words, CommandFlags.DemandMaster).ConfigureAwait(false) == 1;
            }
            catch (Exception e) when (IsPassing(e))
            {
                // The ttl ends what cannot be released.
                if (attempt == 3) return false;
            }
            await Task.Delay(100 * attempt).ConfigureAwait(false);
        }
    }

    internal async Task<bool> RenewAsync(string key, string token, TimeSpan ttl)
    {
        var words = new object[] { (RedisKey)key, token, Ms(ttl) };
        return (long)await db.ExecuteAsync("LOCK.RENEW", words, CommandFlags.DemandMaster).ConfigureAwait(false) == 1;
    }

    /// <summary>A fault after which the same request may be sent again: every request of this file is idempotent.</summary>
    internal static bool IsPassing(Exception e)
    {
        if (e is RedisConnectionException || e is RedisTimeoutException || e is TimeoutException) return true;
        if (!(e is RedisServerException)) return false;
        foreach (var word in new[] { "TRYAGAIN", "READONLY", "LOADING", "CLUSTERDOWN", "MOVED", "ASK", "MASTERDOWN", "QUEUEFULL" })
        {
            if (e.Message.StartsWith(word, StringComparison.Ordinal)) return true;
        }
        return false;
    }

    /// <summary>event fence key-length key token; the key and the token may contain spaces.</summary>
    private void Heard(byte[] message)
    {
        var at = -1;
        var length = 0;
        for (var word = 0; word < 3; word++)
        {
            var start = at + 1;
            at = Array.IndexOf(message, (byte)' ', start);
            if (at < 0) return;
            var text = Encoding.ASCII.GetString(message, start, at - start);
            if (word == 2 && !int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out length)) return;
        }
        // After the key comes one space.
        var tokenAt = at + 1 + (long)length + 1;
        if (tokenAt >= message.Length) return;
        var token = Encoding.UTF8.GetString(message, (int)tokenAt, message.Length - (int)tokenAt);
        SemaphoreSlim waiter;
        // Whatever the event is, the next request is told what is true now.
        if (waiting.TryGetValue(token, out waiter)) waiter.Release();
    }

    private static long Ms(TimeSpan time)
    {
        return Math.Max(1, (long)time.TotalMilliseconds);
    }

    /// <summary>For how long a client may trust its hold. The clocks of two machines differ in speed.</summary>
    internal static TimeSpan Lease(TimeSpan ttl)
    {
        return TimeSpan.FromMilliseconds(ttl.TotalMilliseconds * 0.99 - 2);
    }
}

/// <summary>A lock that is held, and renewed at a third of its ttl until it is released or lost.</summary>
public sealed class RedisHold
{
    private readonly RedisLocks locks;
    private readonly string key;
    private readonly string token;
    private readonly TimeSpan ttl;
    private readonly CancellationTokenSource lost = new CancellationTokenSource();
    private readonly CancellationTokenSource ended = new CancellationTokenSource();
    private readonly Task renewing;
    private volatile Stopwatch renewed;

    internal RedisHold(RedisLocks locks, string key, string token, TimeSpan ttl, long fence, Stopwatch asked)
    {
        this.locks = locks;
        this.key = key;
        this.token = token;
        this.ttl = ttl;
        Fence = fence;
        renewed = asked;
        renewing = RenewAsync();
    }

    /// <summary>Send it along with each write: the resource refuses one smaller than the largest it has seen.</summary>
    public long Fence { get; private set; }

    /// <summary>Is cancelled when the hold may have ended: stop the work then.</summary>
    public CancellationToken Lost { get { return lost.Token; } }

    /// <summary>Whether the hold has not ended, by this machine's clock.</summary>
    public bool IsHeld { get { return !lost.IsCancellationRequested && renewed.Elapsed < RedisLocks.Lease(ttl); } }

    private async Task RenewAsync()
    {
        var pause = Delayable(TimeSpan.FromMilliseconds(ttl.TotalMilliseconds / 3));
        try
        {
            while (true)
            {
                await Task.Delay(pause, ended.Token).ConfigureAwait(false);
                if (!IsHeld) break;
                var asked = Stopwatch.StartNew();
                // A request that hangs must not keep the loss from being noticed.
                var request = locks.RenewAsync(key, token, ttl);
                var limit = Task.Delay(Delayable(RedisLocks.Lease(ttl) - renewed.Elapsed), ended.Token);
                if (await Task.WhenAny(request, limit).ConfigureAwait(false) != request)
                {
                    Forget(request);
                    if (ended.IsCancellationRequested) return;
                    break;
                }
                try
                {
                    if (!await request.ConfigureAwait(false)) break;
                    renewed = asked;
                }
                catch (Exception e) when (RedisLocks.IsPassing(e))
                {
                    // The next turn tries again, while the ttl lasts.
                }
            }
            lost.Cancel();
        }
        catch (OperationCanceledException)
        {
            // It was released.
        }
        catch (Exception)
        {
            lost.Cancel();
            throw;
        }
    }

    /// <summary>Task.Delay refuses more than int.MaxValue, which is 24 days.</summary>
    private static TimeSpan Delayable(TimeSpan time)
    {
        return TimeSpan.FromMilliseconds(Math.Min(Math.Max(1, time.TotalMilliseconds), int.MaxValue));
    }

    /// <summary>Nobody waits for the request any more, so nobody sees its error.</summary>
    private static void Forget(Task request)
    {
        request.ContinueWith(one => one.Exception, TaskContinuationOptions.OnlyOnFaulted);
    }

    /// <summary>Ends the hold. False if it had ended before: others may have held the lock meanwhile.</summary>
    public async Task<bool> ReleaseAsync()
    {
        ended.Cancel();
        try
        {
            await renewing.ConfigureAwait(false);
        }
        catch (Exception)
        {
            // The release tells the caller what is true.
        }
        return await locks.ReleaseAsync(key, token).ConfigureAwait(false);
    }
}
