//! How much of what waits belongs to each user of the server. A user has a small number while
//! anything of it waits, so that a place need not keep a name.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use super::slab::{Id, Slab};

/// The number of a user. It may be given again once nothing of the user waits.
pub(super) type UserId = Id;

#[derive(Clone, Debug)]
struct User {
    name: Rc<[u8]>,
    /// How many of its requests wait, and at how many of its places nobody listens.
    waiting: usize,
}

/// All users of whom anything waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Users<S> {
    all: Slab<User>,
    by_name: HashMap<Rc<[u8]>, UserId, S>,
}

impl<S: BuildHasher> Users<S> {
    /// The number of a user. The caller calls [`Users::add`] next.
    pub(super) fn number(&mut self, name: &[u8]) -> Option<UserId> {
        if let Some(id) = self.by_name.get(name) {
            return Some(*id);
        }
        let name: Rc<[u8]> = name.into();
        let id = self.all.insert(User {
            name: Rc::clone(&name),
            waiting: 0,
        })?;
        self.by_name.insert(name, id);
        Some(id)
    }

    /// How much of a user waits.
    pub(super) fn waiting(&self, name: &[u8]) -> usize {
        let user = self.by_name.get(name).and_then(|id| self.all.get(*id));
        user.map_or(0, |user| user.waiting)
    }

    pub(super) fn add(&mut self, id: UserId) {
        if let Some(user) = self.all.get_mut(id) {
            user.waiting = user.waiting.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, id: UserId) {
        let Some(user) = self.all.get_mut(id) else {
            return;
        };
        user.waiting = user.waiting.saturating_sub(1);
        if user.waiting == 0 {
            self.by_name.remove(&user.name);
            self.all.remove(id);
        }
    }

    /// How much of each user waits.
    #[cfg(test)]
    pub(super) fn all(&self) -> std::collections::BTreeMap<UserId, usize> {
        let waiting = |id: &UserId| (*id, self.all.get(*id).unwrap().waiting);
        assert_eq!(self.by_name.len(), self.all.len());
        self.by_name.values().map(waiting).collect()
    }
}
