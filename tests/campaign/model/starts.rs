//! What a start must keep: all of the file, or the state of one position of it.

use super::{Entry, Keys, Look, Model};
use crate::record::{Kept, Start};

impl<'r, 'l> Model<'r, 'l> {
    pub(super) fn start(&mut self, at: usize, start: Start<'l>) {
        let at_us = start.at_us;
        self.check_all_answered(start.promised_us(), at_us);
        if let Kept::Since(mark) = start.kept {
            self.go_back(at, mark);
        }
        // What was told before is not told again.
        let told = self
            .record
            .requests
            .iter()
            .filter(|one| one.sent_us < at_us);
        let told = told.filter_map(|one| match (one.what, one.answer) {
            (super::What::Acquire, super::Answer::Number(fence)) => Some(fence),
            _ => None,
        });
        self.last_fence = told.max().unwrap_or(0).max(self.last_fence);
        self.views.clear();
        self.current = None;
        self.step = None;
        self.fresh.clear();
        self.dues.clear();
        self.stuck.clear();
        self.absent.clear();
        self.upgraded.clear();
        self.listened.clear();
        self.started = (self.keys[0].clone(), at);
        self.started_us = at_us;
    }

    /// The next look shows the state of a position of this life, and not of one before the mark.
    fn go_back(&mut self, at: usize, mark: &str) {
        let log = &self.record.log;
        let mut later = log[at..].iter().enumerate();
        let seen = later.find_map(|(n, entry)| match entry {
            Entry::Mark(id) => Some((at + n, self.record.looks.get(id)?)),
            _ => None,
        });
        let Some((seen_at, look)) = seen else {
            return;
        };
        let from_ms = look.server_us / 1_000;
        let during = (from_ms, self.next_ms[seen_at + 1].max(from_ms));
        let (mut keys, from) = self.started.clone();
        let mut is_late = mark.is_empty();
        let mut found = None;
        for entry in &log[from..at] {
            is_late |= *entry == Entry::Mark(mark);
            apply(&mut keys, entry);
            if is_late && shows(look, &keys, during) {
                found = Some(keys.clone());
            }
        }
        match found {
            Some(keys) => self.keys[0] = keys,
            None => {
                let text = format!(
                    "no state since {mark} is that of the start: {:?}",
                    look.keys
                );
                self.refuse("lost", text);
            }
        }
    }
}

fn shows(look: &Look<'_>, keys: &Keys<'_>, during: (u64, u64)) -> bool {
    look.keys.iter().all(|(key, shown)| {
        let lock = keys.get(key).cloned().unwrap_or_default();
        lock.fits(shown, during)
    })
}

/// Carries an entry out that changes the locks of one database.
pub(super) fn apply<'l>(keys: &mut Keys<'l>, entry: &Entry<'l>) {
    match *entry {
        Entry::Hold(key, held, now_ms) => keys.entry(key).or_default().hold(held, now_ms),
        Entry::Release(key, token, now_ms) => keys.entry(key).or_default().release(token, now_ms),
        Entry::Cap(key, end_ms) => keys.entry(key).or_default().cap(end_ms),
        Entry::Gone(key) => drop(keys.remove(key)),
        Entry::Flushed(_) => keys.clear(),
        Entry::Renamed(from, to) => {
            let moved = keys.remove(from).unwrap_or_default();
            keys.insert(to, moved);
        }
        Entry::Ends(key, end_ms) => keys.entry(key).or_default().ends(end_ms),
        _ => {}
    }
}
