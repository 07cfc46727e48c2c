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

/// The alignment of every block that the server gives, if its size is a multiple of it.
///
/// jemalloc and glibc give more. A server on the `malloc` of musl puts its own 8 bytes, the size,
/// before each block.
const ALIGNMENT: usize = 8;

// SAFETY: both allocators keep the contract. The server's does so for every layout that asks for no
// more than its alignment; a block for another layout is a part of a larger one.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the static is written once, before the first allocation; the caller vouches for
        // the layout. The block has room for the alignment and what `shift` notes.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) if is_shifted(layout) => {
                    let size = layout.size().saturating_add(layout.align());
                    shift(alloc(size).cast(), layout.align())
                }
                Some(alloc) => alloc(aligned(layout.size(), layout)).cast(),
                None => {
                    #[cfg(test)]
                    tests::count(0, layout.size());
                    System.alloc(layout)
                }
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the same allocator.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) if is_shifted(layout) => free(start_of(memory).cast()),
                Some(free) => free(memory.cast()),
                None => {
                    #[cfg(test)]
                    tests::count(layout.size(), 0);
                    System.dealloc(memory, layout);
                }
            }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above. The caller vouches for the new size, too.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(_) if is_shifted(layout) => {
                    // Elsewhere the shift may be another.
                    let new = Layout::from_size_align_unchecked(new_size, layout.align());
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        ptr::copy_nonoverlapping(memory, moved, layout.size().min(new_size));
                        self.dealloc(memory, layout);
                    }
                    moved
                }
                Some(realloc) => realloc(memory.cast(), aligned(new_size, layout)).cast(),
                None => {
                    #[cfg(test)]
                    tests::count(layout.size(), new_size);
                    System.realloc(memory, layout, new_size)
                }
            }
        }
    }
}

/// Whether blocks of the layout begin later than those of the server. These are the hash tables,
/// which are few.
const fn is_shifted(layout: Layout) -> bool {
    layout.align() > ALIGNMENT
}

/// Finds the first place behind `start` with the alignment, and notes `start` before it.
///
/// # Safety
/// `start` is null, or has the alignment [`ALIGNMENT`] and at least `align` bytes behind it.
/// `align` is a larger power of two.
unsafe fn shift(start: *mut u8, align: usize) -> *mut u8 {
    if start.is_null() {
        return start;
    }
    let beyond = start.addr() & align.wrapping_sub(1);
    // From ALIGNMENT to `align`: there is room for a pointer.
    let by = align.wrapping_sub(beyond);
    // SAFETY: the caller's word.
    unsafe {
        let memory = start.add(by);
        memory.cast::<*mut u8>().sub(1).write(start);
        memory
    }
}

/// The start of the block whose part [`shift`] has given.
///
/// # Safety
/// `memory` is from [`shift`], and not null.
unsafe fn start_of(memory: *mut u8) -> *mut u8 {
    // SAFETY: the caller's word.
    unsafe { memory.cast::<*mut u8>().sub(1).read() }
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

    use super::*;
    use redis_lock_core::lock::{Mode, Refusal, Token, Ttl};
    use redis_lock_core::wait::{KeyRef, Keys, Listener, NewRequest, Registry};

    thread_local! {
        /// `None` in a thread that does not count: the simulations would take longer.
        static ALLOCATED: Cell<Option<isize>> = const { Cell::new(None) };
    }

    pub(super) fn count(before: usize, after: usize) {
        if let Some(sum) = ALLOCATED.get() {
            ALLOCATED.set(Some(sum + size_class(after) - size_class(before)));
        }
    }

    /// What jemalloc takes for a block: four sizes between two powers of two.
    fn size_class(size: usize) -> isize {
        let step = size.next_power_of_two() / 8;
        size.next_multiple_of(step.clamp(if size > 8 { 16 } else { 8 }, 1 << 20)) as isize
    }

    #[test]
    fn a_shifted_block_is_aligned_inside_its_own_and_finds_its_start() {
        // Room that is aligned to 64, seen from each start that a server could give.
        let layout = Layout::from_size_align(512, 64).unwrap();
        // SAFETY: the layout has a size, and each block lies in the room.
        unsafe {
            let room = System.alloc(layout);
            for align in [16, 32, 64] {
                for start in (0..128).step_by(ALIGNMENT).map(|at| room.add(at)) {
                    let memory = shift(start, align);
                    let by = memory.addr() - start.addr();
                    assert_eq!(memory.addr() % align, 0, "{align}");
                    assert!((size_of::<usize>()..=align).contains(&by), "{align}: {by}");
                    assert_eq!(start_of(memory), start);
                }
            }
            System.dealloc(room, layout);
            assert!(shift(ptr::null_mut(), 16).is_null());
        }
    }

    type Waiting = Registry<u64, foldhash::fast::RandomState>;

    /// A table that doubles is half empty at one of these.
    const COUNTS: [u64; 6] = [1_000, 2_000, 10_000, 29_000, 100_000, 115_000];

    /// Bytes for each place when there are so many, which wait for one key or for a key of their
    /// own, listened at by a channel or by nobody: those that are allocated, and those that are
    /// counted.
    fn bytes_each(is_one_key: bool, is_channel: bool) -> [[isize; 2]; COUNTS.len()] {
        ALLOCATED.set(Some(0));
        let mut all = [[0; 2]; COUNTS.len()];
        let mut registry = Waiting::default();
        for n in 0..COUNTS[COUNTS.len() - 1] {
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
                result: None,
                user: Some(b"worker"),
                refusal: Refusal::Busy,
                now_us: n,
            };
            let (entered, _) = registry.enter(&Keys::One(key.clone()), new);
            if entered.must_serve() {
                registry.set_wake(&key, Some(30_000 + n));
            }
            let places = registry.len();
            if let Some(at) = COUNTS.iter().position(|count| *count == places as u64) {
                // The name and the token of the next one are not among them.
                drop((key, token, name));
                let bytes = [ALLOCATED.get().unwrap(), registry.bytes() as isize];
                all[at] = bytes.map(|bytes| bytes / places as isize);
            }
        }
        drop(registry);
        assert_eq!(ALLOCATED.take(), Some(0), "something is never freed");
        all
    }

    #[test]
    fn a_place_takes_450_bytes_at_most_and_560_with_a_key_of_its_own() {
        for (is_one_key, is_channel) in [(true, true), (true, false), (false, true), (false, false)]
        {
            let each = bytes_each(is_one_key, is_channel);
            println!("one key: {is_one_key}, channel: {is_channel}: {each:?} bytes");
            for [bytes, counted] in &each {
                assert!(*bytes <= if is_one_key { 450 } else { 560 }, "{each:?}");
                assert!((bytes - counted).abs() * 3 <= *bytes, "{each:?}");
            }
        }
    }
}
