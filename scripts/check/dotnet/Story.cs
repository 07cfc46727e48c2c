// Plays examples/dotnet/RedisLocks.cs on a real server: the port is the argument.
using System;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;
using StackExchange.Redis;

public static class Story
{
    private static void Assert(bool holds, string what) { if (!holds) throw new Exception("not so: " + what); }

    private static async Task PlayAsync(int port)
    {
        var redis = new ConnectionMultiplexer(port);
        var locks = await RedisLocks.OpenAsync(redis);
        var second = TimeSpan.FromSeconds(1);
        var minute = TimeSpan.FromSeconds(60);
        foreach (var key in new[] { "jobs:42", "a key with spaces", "ключ" })
        {
            var first = await locks.AcquireAsync(key, minute, minute);
            Assert(first != null && first.IsHeld, "the first has it");
            var waiter = locks.AcquireAsync(key, minute, minute);
            Assert(await locks.AcquireAsync(key, minute, TimeSpan.FromMilliseconds(200)) == null, "the patience ends");
            Assert(!waiter.IsCompleted, "it waits");
            // Well below the time after which it would ask again by itself.
            var since = Stopwatch.StartNew();
            Assert(await first.ReleaseAsync(), "it was held");
            var next = await waiter;
            Assert(since.ElapsedMilliseconds < 1000, "a message wakes it: " + since.ElapsedMilliseconds + " ms");
            Assert(next.Fence > first.Fence, "fences rise");
            Assert(!await first.ReleaseAsync(), "a late release changes nothing");
            Assert(next.IsHeld && await next.ReleaseAsync(), "the next one has it");
        }

        // For ever is no overflow, neither of the patience nor of the ttl.
        foreach (var each in new[] { locks, await RedisLocks.OpenAsync(redis, notify: false) })
        {
            var days = await each.AcquireAsync("days", TimeSpan.FromDays(90), TimeSpan.MaxValue);
            var patient = each.AcquireAsync("days", minute, TimeSpan.MaxValue);
            await Task.Delay(300);
            Assert(!patient.IsCompleted, "it waits for ever: " + patient.Exception);
            Assert(days.IsHeld, "a ttl of 90 days");
            Assert(await days.ReleaseAsync() && await (await patient).ReleaseAsync(), "the patient one has it");
        }

        // The reply is lost after the grant: the token asks again, and has the same hold.
        redis.Connection.Lose = 1;
        var lost = await locks.AcquireAsync("lost", minute, minute);
        Assert(lost != null && await lost.ReleaseAsync(), "a lost reply loses no lock");

        // It is renewed, and outlives its ttl three times over.
        var renewed = await locks.AcquireAsync("renewed", second, minute);
        await Task.Delay(3000);
        Assert(renewed.IsHeld && !renewed.Lost.IsCancellationRequested, "it is renewed");
        // Somebody deletes it: the next renewal tells.
        await redis.GetDatabase().ExecuteAsync("DEL", new object[] { (RedisKey)"renewed" });
        for (var i = 0; i < 50 && !renewed.Lost.IsCancellationRequested; i++) await Task.Delay(100);
        Assert(renewed.Lost.IsCancellationRequested && !renewed.IsHeld, "the loss is told");
        Assert(!await renewed.ReleaseAsync(), "it held nothing");

        // Without NOTIFY it polls, and keeps its place. One that is cancelled leaves nothing behind.
        var polling = await RedisLocks.OpenAsync(redis, notify: false);
        var held = await polling.AcquireAsync("polled", minute, minute);
        var cancel = new CancellationTokenSource();
        var cancelled = polling.AcquireAsync("polled", minute, minute, cancel.Token);
        var polled = polling.AcquireAsync("polled", minute, minute);
        cancel.Cancel();
        try { await cancelled; Assert(false, "it was cancelled"); } catch (OperationCanceledException) { }
        Assert(await held.ReleaseAsync(), "it was held");
        Assert(await (await polled).ReleaseAsync(), "the poll was granted");
        var left = await redis.GetDatabase().ExecuteAsync("DBSIZE", new object[0]);
        Assert((long)left == 0, "nothing is left");
        try { await redis.GetDatabase().ExecuteAsync("LOCK.NO", new object[0]); Assert(false, "an error"); } catch (RedisServerException) { }
    }

    public static int Main(string[] args)
    {
        PlayAsync(int.Parse(args[0])).GetAwaiter().GetResult();
        Console.WriteLine("dotnet: examples/dotnet/RedisLocks.cs waits, renews, and releases on a real server, over a stand-in of StackExchange.Redis");
        return 0;
    }
}
