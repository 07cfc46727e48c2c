//! A server that has no time for its clients: it runs a long script, or sleeps.

use super::{wait_for, Raw, Reply, Server};

impl Server {
    /// Has the server run an endless script or function, on its own connection. Returns when the
    /// server reports that it is busy.
    pub fn busy_with(&self, command: &[u8]) -> Raw {
        let mut caller = self.raw();
        caller.send_bytes(command);
        self.wait_until_busy();
        caller
    }

    /// Waits until the server reports that it is busy.
    pub fn wait_until_busy(&self) {
        let mut c = self.client();
        wait_for("the server to be busy", || {
            matches!(c.call("PING"), Reply::Error(error) if error.starts_with("BUSY")).then_some(())
        });
    }

    /// Puts the server to sleep, and returns when the sleep has begun. The server reads what comes
    /// meanwhile in one turn of its loop.
    pub fn sleeps(&self, seconds: &str) -> Raw {
        self.sleeps_before(seconds, "PING")
    }

    /// The same, and the server runs a command in the turn of the sleep, after it.
    pub fn sleeps_before(&self, seconds: &str, command: &str) -> Raw {
        let naps = self.log().matches("nap-begins").count();
        let mut sleeper = self.raw();
        // The log is written immediately, so it shows when the sleep begins.
        let log = "EVAL redis.log(redis.LOG_WARNING,ARGV[1]) 0 nap-begins";
        let sleep = format!("DEBUG SLEEP {seconds}");
        sleeper.send(&["MULTI", log, &sleep, command, "EXEC"].join("\r\n"));
        wait_for("the server to sleep", || {
            (self.log().matches("nap-begins").count() > naps).then_some(())
        });
        sleeper
    }
}
