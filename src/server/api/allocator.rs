//! The allocator. It is the server's, so the module's memory counts in `used_memory` and towards
//! `maxmemory`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use redis_module::raw;

/// Asks the server for memory. In a process without a server it asks the system: tests, fuzzers and
/// benchmarks link this library as a crate.
///
/// The server's functions are there before the module's first allocation, or never. So memory
/// always returns to the allocator that gave it.
#[derive(Debug)]
pub(crate) struct ServerMemory;

/// The server's allocators align blocks of at least this size to it. They align a smaller block to
/// the largest power of two that divides its size.
const ALIGNMENT: usize = 16;

// SAFETY: both allocators keep the contract. The server's does so for every layout that asks for no
// more than its alignment; the other layouts are refused.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the static is written once, before the first allocation; the caller vouches for
        // the layout.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(_) if layout.align() > ALIGNMENT => ptr::null_mut(),
                Some(alloc) => alloc(aligned(layout.size(), layout)).cast(),
                None => {
                    #[cfg(test)]
                    tests::count(layout.size() as isize);
                    System.alloc(layout)
                }
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the same allocator.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(memory.cast()),
                None => {
                    #[cfg(test)]
                    tests::count(-(layout.size() as isize));
                    System.dealloc(memory, layout);
                }
            }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(realloc) => realloc(memory.cast(), aligned(new_size, layout)).cast(),
                None => {
                    #[cfg(test)]
                    tests::count(new_size as isize - layout.size() as isize);
                    System.realloc(memory, layout, new_size)
                }
            }
        }
    }
}

/// A size for which the server's allocators give the alignment of the layout.
const fn aligned(size: usize, layout: Layout) -> usize {
    match size.checked_next_multiple_of(layout.align()) {
        Some(size) => size,
        None => size,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::lock::{Mode, Now, Refusal, Token, Ttl};
    use crate::wait::{KeyRef, Listener, NewRequest, Registry};

    thread_local! {
        static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: isize) {
        ALLOCATED.set(ALLOCATED.get() + bytes);
    }

    type Waiting = Registry<u64, foldhash::fast::RandomState>;

    /// Bytes for each of so many places that wait for one key or for a key of their own, listened at by a channel or by nobody.
    fn bytes_each(places: u64, is_one_key: bool, is_channel: bool) -> isize {
        let before = ALLOCATED.get();
        let mut registry = Waiting::default();
        for n in 0..places {
            let mixed = u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
            let token = uuid::Uuid::from_u128(mixed).hyphenated().to_string();
            let name = format!("{:016x}", if is_one_key { 0 } else { n });
            let key = KeyRef::new(0, name.as_bytes());
            let new = NewRequest {
                token: Token::new(token.as_bytes()).unwrap(),
                mode: Mode::Exclusive,
                ttl: Ttl::from_millis(30_000).unwrap(),
                listener: is_channel.then(|| Listener::channel(b"my-channel")),
                times_out_at_us: Some(60_000_000 + n),
                keep_ms: Some(2_000),
                is_server_generated: false,
                linger: None,
                refusal: Refusal::Busy,
                now: Now::from_millis(n),
                now_us: n,
            };
            if registry.enter(&key, new).must_serve() {
                registry.set_wake(&key, Some(30_000 + n));
            }
        }
        assert_eq!(registry.len() as u64, places);
        let bytes = ALLOCATED.get() - before;
        drop(registry);
        assert_eq!(ALLOCATED.get(), before, "something is never freed");
        bytes / places as isize
    }

    #[test]
    fn a_place_without_a_blocked_client_takes_400_bytes_at_most() {
        for (is_one_key, is_channel) in [(true, true), (true, false), (false, true), (false, false)]
        {
            // The second and the third are about the best and the worst that a table can be filled.
            let each =
                [1, 100_000, 114_000, 115_000].map(|n| bytes_each(n, is_one_key, is_channel));
            println!("one key: {is_one_key}, channel: {is_channel}: {each:?} bytes for 1, 100,000, 114,000, 115,000 places");
            assert!(each[1..].iter().all(|bytes| *bytes <= 400), "{each:?}");
        }
    }
}
