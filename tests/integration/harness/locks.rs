use super::client::{Client, Reply};
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

    #[track_caller]
    fn tokens(&mut self, key: &str, field: &str) -> Vec<String> {
        let info = self.call(&format!("LOCK.INFO {key}"));
        if info == Reply::Nil {
            return Vec::new();
        }
        let parties = info.field(field);
        let tokens = parties.items().iter().map(|party| party.field("token"));
        tokens
            .map(|token| String::from_utf8_lossy(token.as_bytes()).into_owned())
            .collect()
    }

    /// Sends lines together, so that nothing slow comes between them. Returns their replies.
    #[track_caller]
    pub fn in_one_go(&mut self, lines: &[&str]) -> Vec<Reply> {
        let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
        self.pipeline(&commands)
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
