//! What the locks protect: numbers that clients read, and write again one larger.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Numbers outside of the servers. Each knows the largest fence that it was shown, and refuses
/// smaller ones: to readers too, because an owner of late that still reads could write once more.
#[derive(Default)]
pub struct Resources(Mutex<BTreeMap<String, Resource>>);

#[derive(Default)]
struct Resource {
    fence: i64,
    value: u64,
}

impl Resources {
    /// `None` if it was refused.
    pub fn read(&self, name: &str, fence: i64) -> Option<u64> {
        self.with(name, fence, |resource| resource.value)
    }

    /// Whether it was accepted.
    pub fn write(&self, name: &str, fence: i64, value: u64) -> bool {
        self.with(name, fence, |resource| resource.value = value)
            .is_some()
    }

    fn with<T>(&self, name: &str, fence: i64, act: impl FnOnce(&mut Resource) -> T) -> Option<T> {
        let mut all = self.0.lock().unwrap();
        let resource = all.entry(name.to_string()).or_default();
        (fence >= resource.fence).then(|| {
            resource.fence = fence;
            act(resource)
        })
    }
}
