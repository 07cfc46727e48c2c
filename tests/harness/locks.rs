use std::fmt::Debug;

use super::client::{Client, Reply};
use super::server::{wait_for, wait_until};
use super::workload::words;

/// Shortcuts for LOCK.INFO.
impl Client {
    /// The tokens that hold a lock, in the order of their grants.
    #[track_caller]
    pub fn holders(&mut self, key: &str) -> Vec<String> {
        let holders = self.lock_info(key).holders.into_iter();
        holders.map(|holder| holder.token).collect()
    }

    /// The tokens that wait for a lock, in the order of the queue.
    #[track_caller]
    pub fn waiters(&mut self, key: &str) -> Vec<String> {
        let waiters = self.lock_info(key).waiters.into_iter();
        waiters.map(|waiter| waiter.token).collect()
    }

    /// The holds of a lock: token and fence.
    #[track_caller]
    pub fn holds(&mut self, key: &str) -> Vec<(String, i64)> {
        let holders = self.lock_info(key).holders.into_iter();
        holders.map(|holder| (holder.token, holder.fence)).collect()
    }

    /// The mode of a lock.
    #[track_caller]
    pub fn mode(&mut self, key: &str) -> String {
        self.lock_info(key).mode
    }

    /// LOCK.INFO without the fields that change with time: the mode, and of each holder the token,
    /// the fence and the time of its grant.
    #[track_caller]
    pub fn steady_info(&mut self, key: &str) -> Vec<Reply> {
        let info = self.lock_info(key);
        let mut parts = vec![Reply::from(&*info.mode)];
        for one in info.holders {
            let token = Reply::from(&*one.token);
            parts.extend([token, one.fence.into(), one.since_ms.into()]);
        }
        parts
    }

    /// Sends RESTORE. The line has the key, the ttl, and the options that follow the payload.
    #[track_caller]
    pub fn restore(&mut self, line: &str, payload: &[u8]) -> Reply {
        let mut args = words(&format!("RESTORE {line}"));
        args.insert(3, payload.to_vec());
        self.send(&args)
    }

    /// Sends a line again and again until this is its reply.
    #[track_caller]
    pub fn until(&mut self, line: &str, reply: impl Into<Reply>) {
        self.until_it_is(line, &reply.into(), |c| c.call(line));
    }

    /// Waits until a field of INFO has this value.
    #[track_caller]
    pub fn until_info(&mut self, field: &str, value: &str) {
        self.until_it_is(field, &value.to_string(), |c| c.info(field));
    }

    /// Waits until these tokens hold a lock, and no others.
    #[track_caller]
    pub fn until_holders(&mut self, key: &str, tokens: &[&str]) {
        let tokens: Vec<_> = tokens.iter().map(ToString::to_string).collect();
        self.until_it_is("the holders", &tokens, |c| c.holders(key));
    }

    /// Waits until these tokens wait for a lock, and no others.
    #[track_caller]
    pub fn until_waiters(&mut self, key: &str, tokens: &[&str]) {
        let tokens: Vec<_> = tokens.iter().map(ToString::to_string).collect();
        self.until_it_is("the waiters", &tokens, |c| c.waiters(key));
    }

    #[track_caller]
    fn until_it_is<T: Debug + PartialEq>(
        &mut self,
        what: &str,
        expected: &T,
        look: impl Fn(&mut Self) -> T,
    ) {
        wait_until(|| match look(self) {
            seen if seen == *expected => Ok(()),
            seen => Err(format!("{what} to be {expected:?}, and not {seen:?}")),
        });
    }

    /// Waits until a fence is the server's clock in microseconds. A server begins ahead of it.
    #[track_caller]
    pub fn until_fences_follow_the_clock(&mut self) {
        wait_for("fences to follow the clock", || {
            let fence = self.int("LOCK.ACQUIRE clock me 60000");
            self.int("LOCK.RELEASE clock me");
            (u64::try_from(fence).unwrap() <= self.now_us()).then_some(())
        });
    }

    /// Sends lines together, so that nothing slow comes between them. Returns their replies.
    #[track_caller]
    pub fn in_one_go(&mut self, lines: &[&str]) -> Vec<Reply> {
        let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
        self.pipeline(&commands)
    }

    /// Sends many lines. No reply may be an error.
    #[track_caller]
    pub fn send_all(&mut self, lines: impl IntoIterator<Item = String>) {
        let commands: Vec<_> = lines.into_iter().map(|line| words(&line)).collect();
        for some in commands.chunks(1_000) {
            for reply in self.pipeline(some) {
                assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
            }
        }
    }

    /// Runs lines in one MULTI. Returns their replies.
    #[track_caller]
    pub fn multi(&mut self, lines: &[&str]) -> Vec<Reply> {
        self.call("MULTI");
        for line in lines {
            let queued = self.call(line);
            assert_eq!(queued, Reply::Simple("QUEUED".into()), "{line}");
        }
        self.call("EXEC").items().to_vec()
    }
}
