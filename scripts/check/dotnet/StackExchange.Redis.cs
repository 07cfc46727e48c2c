// Stand-ins for the types of StackExchange.Redis that examples/dotnet uses, over a plain socket. They are no copy of it: one request at a
// time, no cluster, no reconnection. `Connection.Lose` has the next replies get lost, as on a connection that breaks.
using System;
using System.Collections.Generic;
using System.IO;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace StackExchange.Redis
{
    [Flags] public enum CommandFlags { None = 0, DemandMaster = 4 }

    public class RedisException : Exception { public RedisException(string text) : base(text) { } }
    public class RedisServerException : RedisException { public RedisServerException(string text) : base(text) { } }
    public class RedisConnectionException : RedisException { public RedisConnectionException(string text) : base(text) { } }
    public class RedisTimeoutException : TimeoutException { public RedisTimeoutException(string text) : base(text) { } }

    public struct RedisKey
    {
        public string Name;
        public static implicit operator RedisKey(string name) { return new RedisKey { Name = name }; }
        public override string ToString() { return Name; }
    }

    public struct RedisValue
    {
        public byte[] Bytes;
        public static implicit operator byte[](RedisValue value) { return value.Bytes; }
    }

    public struct RedisChannel
    {
        public string Name;
        public static RedisChannel Literal(string name) { return new RedisChannel { Name = name }; }
    }

    public class RedisResult
    {
        internal object Value;
        public bool IsNull { get { return Value == null; } }
        public static explicit operator string(RedisResult one) { return one.Value == null ? null : one.Value is byte[] ? Encoding.UTF8.GetString((byte[])one.Value) : one.Value.ToString(); }
        public static explicit operator long(RedisResult one) { return (long)one.Value; }
    }

    public interface IDatabase { Task<RedisResult> ExecuteAsync(string command, ICollection<object> args, CommandFlags flags = CommandFlags.None); }
    public interface ISubscriber { Task SubscribeAsync(RedisChannel channel, Action<RedisChannel, RedisValue> handler, CommandFlags flags = CommandFlags.None); }
    public interface IConnectionMultiplexer { IDatabase GetDatabase(int db = -1, object asyncState = null); ISubscriber GetSubscriber(object asyncState = null); }

    public class ConnectionMultiplexer : IConnectionMultiplexer
    {
        public readonly Connection Connection;
        private readonly int port;
        public ConnectionMultiplexer(int port) { this.port = port; Connection = new Connection(port); }
        public IDatabase GetDatabase(int db = -1, object asyncState = null) { return Connection; }
        public ISubscriber GetSubscriber(object asyncState = null) { return new Subscriber(new Connection(port)); }
    }

    public class Connection : IDatabase
    {
        private readonly NetworkStream stream;
        public int Lose;
        public int Sent;
        public Connection(int port) { stream = new TcpClient("127.0.0.1", port).GetStream(); }

        public Task<RedisResult> ExecuteAsync(string command, ICollection<object> args, CommandFlags flags = CommandFlags.None)
        {
            return Task.Run(() =>
            {
                lock (this)
                {
                    Send(command, args);
                    var reply = Read();
                    if (Lose > 0 && Lose-- > 0) throw new RedisConnectionException("the reply was lost");
                    if (reply is Exception) throw (Exception)reply;
                    return new RedisResult { Value = reply };
                }
            });
        }

        public void Send(string command, ICollection<object> args)
        {
            var line = new StringBuilder("*" + (args.Count + 1) + "\r\n");
            var words = new List<object> { command };
            words.AddRange(args);
            foreach (var word in words)
            {
                var text = word.ToString();
                line.Append("$" + Encoding.UTF8.GetByteCount(text) + "\r\n" + text + "\r\n");
            }
            var bytes = Encoding.UTF8.GetBytes(line.ToString());
            Sent++;
            stream.Write(bytes, 0, bytes.Length);
        }

        public object Read()
        {
            var line = new StringBuilder();
            for (int one; (one = stream.ReadByte()) != '\n';)
            {
                if (one < 0) throw new RedisConnectionException("the connection was closed");
                if (one != '\r') line.Append((char)one);
            }
            var rest = line.ToString(1, line.Length - 1);
            switch (line[0])
            {
                case '+': return rest;
                case '-': return new RedisServerException(rest);
                case ':': return long.Parse(rest);
                case '$':
                    var length = int.Parse(rest);
                    if (length < 0) return null;
                    var bytes = new byte[length + 2];
                    for (var at = 0; at < bytes.Length;) at += stream.Read(bytes, at, bytes.Length - at);
                    Array.Resize(ref bytes, length);
                    return bytes;
                case '*':
                    var items = new object[Math.Max(0, int.Parse(rest))];
                    for (var i = 0; i < items.Length; i++) items[i] = Read();
                    return int.Parse(rest) < 0 ? null : items;
            }
            throw new IOException(line.ToString());
        }
    }

    public class Subscriber : ISubscriber
    {
        private readonly Connection connection;
        public Subscriber(Connection connection) { this.connection = connection; }

        public Task SubscribeAsync(RedisChannel channel, Action<RedisChannel, RedisValue> handler, CommandFlags flags = CommandFlags.None)
        {
            connection.Send("SUBSCRIBE", new object[] { channel.Name });
            connection.Read();
            new Thread(() =>
            {
                try
                {
                    while (true) handler(channel, new RedisValue { Bytes = (byte[])((object[])connection.Read())[2] });
                }
                catch (Exception) { }
            }) { IsBackground = true }.Start();
            return Task.FromResult(0);
        }
    }
}
