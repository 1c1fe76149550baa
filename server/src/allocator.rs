//! The C library's allocator: large buffers go back to the system when they are
//! freed.
//!
//! By itself, glibc raises the size from which it maps memory up to 32 MiB as such
//! buffers are freed. Frames and batches of a few MiB then lie in the arenas of many
//! threads, where what is freed stays between what is not: 40 archives, four at a
//! time, left 150 MiB of resident memory, and 66 MiB with a fixed threshold.
//!
//! `mallopt` takes two numbers and keeps no pointer, so no memory is at risk; it is
//! called before the server's threads begin.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt; see the header"))]

/// Buffers from here on are mapped on their own. The pieces of answers are shorter:
/// they come and go quickly, and mapping costs a page fault for each 4 KiB.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 512 << 10;

/// Has the C library give large buffers back, for the whole process. Other C
/// libraries do so by themselves.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes numbers; one that is refused changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
}
