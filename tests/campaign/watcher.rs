//! What the primary itself says of its guard.

use std::thread::sleep;
use std::time::Duration;

use super::clients::Scene;
use crate::harness::{Client, Reply};

const EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(500);

struct Watcher<'s, 'p> {
    scene: &'s Scene<'p>,
    connection: Option<(u16, Client)>,
    guard: (u16, String),
}

/// Notes each change of the guard.
pub fn watch(scene: &Scene<'_>) {
    let mut watcher = Watcher {
        scene,
        connection: None,
        guard: (0, String::new()),
    };
    while !scene.is_over() {
        sleep(EVERY);
        if watcher.look().is_none() {
            watcher.connection = None;
        }
    }
}

impl Watcher<'_, '_> {
    /// `None` if the connection is lost, or is not to be had.
    fn look(&mut self) -> Option<()> {
        let port = self.scene.primary();
        self.connection.take_if(|(to, _)| *to != port);
        if self.connection.is_none() {
            self.connection = Some((port, Client::try_connect_within(port, PATIENCE)?));
        }
        let (_, c) = self.connection.as_mut()?;
        let Ok(Reply::Bulk(info)) = c.try_call("INFO lock") else {
            return None;
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let mut fields = info.lines();
        let guard = fields.find_map(|line| line.strip_prefix("lock_guard:"));
        let guard = (port, guard.unwrap_or("?").to_string());
        if guard != self.guard {
            let journal = self.scene.journal;
            journal.note("watcher", port, "guard", &guard.1);
            self.guard = guard;
        }
        Some(())
    }
}
