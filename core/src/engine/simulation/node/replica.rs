//! What a server sends to its replicas and into its file, and what it does with what it gets.

use std::rc::Rc;

use super::super::{Place, EVERY_DB};
use super::{Node, Value};
use crate::command::guard::Beat;
use crate::engine::guard::GuardEvent;
use crate::engine::host::Key as _;
use crate::engine::host::{Host, Purpose, Server};
use crate::engine::Note;
use crate::lock::codec::{self, decode, encode_effect, encode_fence, encode_state};
use crate::lock::{Deadline, Effect, Token};

/// A change of a key, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Record {
    pub(in super::super) at: Place,
    pub(in super::super) change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    /// LOCK._APPLY with these bytes.
    Apply(Rc<[u8]>),
    /// LOCK._RELEASE with this token: the end of a lock's only hold.
    Released(Rc<[u8]>),
    /// DEL, of the server itself.
    Deleted,
    /// What the primary tells of its guard.
    Beat(Beat),
}

impl Change {
    pub(super) fn of_effect(effect: &Effect<'_>, ends_lock: bool) -> Self {
        if let (Effect::Release { token, .. }, true) = (effect, ends_lock) {
            return Self::Released(token.as_bytes().into());
        }
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        Self::Apply(bytes.into())
    }

    /// Whether it changes a key.
    pub(in super::super) fn is_of_key(&self) -> bool {
        !matches!(self, Self::Beat(_))
    }

    /// The effect, as the server that gets it reads it. `None` for a deletion.
    pub(in super::super) fn effect(&self) -> Option<Effect<'_>> {
        match self {
            Self::Apply(bytes) => match decode(bytes) {
                Ok(codec::Record::Effect(effect)) => Some(effect),
                other => panic!("no effect: {other:?}"),
            },
            Self::Released(token) => Some(Effect::Release {
                now_ms: 0,
                token: Token::new(token).unwrap(),
            }),
            Self::Deleted | Self::Beat(_) => None,
        }
    }
}

/// What a full copy has, and a file: each lock, when its key ends, and the last fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Snapshot {
    pub(in super::super) locks: Vec<(Place, Rc<[u8]>, Option<Deadline>)>,
    fence: Option<Rc<[u8]>>,
}

impl Snapshot {
    /// The record of the last fence.
    pub(in super::super) fn fence_bytes(&self) -> Option<&[u8]> {
        self.fence.as_deref()
    }
}

impl Node {
    /// A server whose changes are sent, and whose clients say LINGER where they want to.
    pub(in super::super) fn of_several() -> Self {
        let mut node = Self::new(true);
        node.memory.sent = Some(Vec::new()).into();
        node.memory.linger_ms.set(None);
        node
    }

    /// What is to be sent since this was asked last.
    pub(in super::super) fn take_sent(&self) -> Vec<Record> {
        let mut sent = self.memory.sent.borrow_mut();
        sent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the timer is set to go off at once.
    pub(in super::super) fn is_timer_set(&self) -> bool {
        self.memory.is_armed.get()
    }

    pub(in super::super) fn snapshot(&self) -> Snapshot {
        let values = self.values();
        let locks = values.iter().filter_map(|(at, value)| match value {
            Value::Lock(lock, end) => Some((*at, encode_state(lock).into(), *end)),
            Value::Other => None,
        });
        Snapshot {
            locks: locks.collect(),
            fence: self
                .shared
                .fences
                .last()
                .map(|fence| encode_fence(fence).to_vec().into()),
        }
    }

    /// Loads a full copy, or a file, in place of everything.
    pub(in super::super) fn load(&mut self, snapshot: &Snapshot) {
        self.flush(EVERY_DB);
        if let Some(Ok(codec::Record::Fence(fence))) = snapshot.fence_bytes().map(decode) {
            self.shared.fences.observe(fence);
        }
        for (at, bytes, end) in &snapshot.locks {
            let Ok(codec::Record::State(lock)) = decode(bytes) else {
                panic!("no lock: {bytes:?}");
            };
            for (_, hold) in lock.holders() {
                self.shared.fences.observe(hold.fence);
            }
            let value = Value::Lock(lock, *end);
            self.memory.values.borrow_mut().insert(*at, value);
        }
        self.take_sent();
    }

    /// Carries out what a primary has sent, as `server/entry/replay.rs` does.
    pub(in super::super) fn replay(&mut self, record: &Record) {
        if let Change::Beat(beat) = &record.change {
            let ctx = self.memory.ctx();
            let heard = GuardEvent::Heard(beat.clone(), ctx.boot_us(), ctx.now());
            return self.leave(Note::Guard(heard));
        }
        let Some(effect) = record.change.effect() else {
            self.delete(record.at);
            self.take_sent();
            return;
        };
        let fences = &self.shared.fences;
        effect.fence().into_iter().for_each(|f| fences.observe(f));
        self.memory.db.set(record.at.db.into());
        let mut task = self.task(0, vec![record.at]);
        let mut key = task.open_key(Purpose::Write).unwrap();
        key.apply(&effect);
        drop(key);
        drop(task);
        self.take_sent();
    }
}
