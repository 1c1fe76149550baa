//! Makes the C library's allocator return large freed buffers to the system.
//!
//! By default, glibc raises its `mmap` threshold, up to 32 MiB, when mapped buffers are freed. Then
//! it allocates frames and batches of a few MiB in the arenas of many threads, where freed buffers
//! stay between live ones. Measured: 40 archives, four at a time, left 150 MiB of resident memory;
//! with a fixed threshold they left 66 MiB.
//!
//! `mallopt` takes two numbers and keeps no pointer, so it cannot break memory safety. It
//! is called before the server's threads start.

#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "mallopt; see the module documentation")
)]

/// Allocations of at least this size are mapped separately. Pieces of responses are shorter: they
/// live briefly, and mapping a piece would cost a page fault for each 4 KiB.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 512 << 10;

/// Makes the C library return large freed buffers to the system, for the whole process. Does
/// nothing with a C library other than glibc, since the others return such buffers anyway.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes only numbers; a value that it rejects changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
}
