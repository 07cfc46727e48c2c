use std::fmt::Debug;

use super::client::{Client, Reply};
use super::server::{wait_for, wait_until};
use super::workload::words;

/// Shortcuts for LOCK.INFO.
impl Client {
    /// The tokens that hold a lock, in the order of their grants.
    #[track_caller]
    pub fn holders(&mut self, key: &str) -> Vec<String> {
        self.tokens(key, "holders")
    }

    /// The tokens that wait for a lock, in the order of the queue.
    #[track_caller]
    pub fn waiters(&mut self, key: &str) -> Vec<String> {
        self.tokens(key, "waiters")
    }

    /// The holds of a lock: token and fence.
    #[track_caller]
    pub fn holds(&mut self, key: &str) -> Vec<(String, i64)> {
        let info = self.call(&format!("LOCK.INFO {key}"));
        if info == Reply::Nil {
            return Vec::new();
        }
        let hold = |hold: &Reply| (text(&hold.field("token")), hold.field("fence").as_int());
        info.field("holders").items().iter().map(hold).collect()
    }

    /// The mode of a lock.
    #[track_caller]
    pub fn mode(&mut self, key: &str) -> String {
        text(&self.call(&format!("LOCK.INFO {key}")).field("mode"))
    }

    /// LOCK.INFO without the fields that change with time.
    #[track_caller]
    pub fn steady_info(&mut self, key: &str) -> Vec<Reply> {
        let info = self.call(&format!("LOCK.INFO {key}"));
        let mut parts = vec![info.field("mode")];
        for holder in info.field("holders").items() {
            parts.extend(["token", "fence", "since"].map(|name| holder.field(name)));
        }
        parts
    }

    #[track_caller]
    fn tokens(&mut self, key: &str, field: &str) -> Vec<String> {
        let info = self.call(&format!("LOCK.INFO {key}"));
        if info == Reply::Nil {
            return Vec::new();
        }
        let parties = info.field(field);
        let tokens = parties.items().iter();
        tokens.map(|party| text(&party.field("token"))).collect()
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

#[track_caller]
fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes()).into_owned()
}
