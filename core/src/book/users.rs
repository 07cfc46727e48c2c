//! How much of what waits belongs to each user of the server. A user has a small number while
//! anything of it waits, so that a place need not keep a name.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use slab::Slab;

use crate::rules::place::UserId;

impl UserId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
struct User {
    name: Rc<[u8]>,
    /// How many of its requests wait, and at how many of its places nobody listens.
    waiting: usize,
}

/// All users of whom anything waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users<S> {
    all: Slab<User>,
    by_name: HashMap<Rc<[u8]>, UserId, S>,
}

impl<S: BuildHasher> Users<S> {
    /// The number of a user. The caller calls [`Users::add`] next.
    pub(crate) fn number(&mut self, name: &[u8]) -> UserId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name: Rc<[u8]> = name.into();
        let index = self.all.insert(User {
            name: Rc::clone(&name),
            waiting: 0,
        });
        // There are never 2^32 of them.
        let id = UserId(index as u32);
        self.by_name.insert(name, id);
        id
    }

    /// How much of a user waits.
    pub(crate) fn waiting(&self, name: &[u8]) -> usize {
        let user = self
            .by_name
            .get(name)
            .and_then(|id| self.all.get(id.index()));
        user.map_or(0, |user| user.waiting)
    }

    pub(crate) fn add(&mut self, id: UserId) {
        if let Some(user) = self.all.get_mut(id.index()) {
            user.waiting = user.waiting.saturating_add(1);
        }
    }

    pub(crate) fn remove(&mut self, id: UserId) {
        let Some(user) = self.all.get_mut(id.index()) else {
            return debug_assert!(false, "a user of whom nothing waits");
        };
        user.waiting = user.waiting.saturating_sub(1);
        if user.waiting == 0 {
            self.by_name.remove(&user.name);
            self.all.remove(id.index());
        }
    }

    /// How much of each user waits.
    #[cfg(test)]
    pub(crate) fn all(&self) -> std::collections::BTreeMap<UserId, usize> {
        let waiting = |id: &UserId| (*id, self.all.get(id.index()).unwrap().waiting);
        assert_eq!(self.by_name.len(), self.all.len());
        self.by_name.values().map(waiting).collect()
    }
}
