//! An LRU cache of decompressed frames, limited in bytes.

use std::{collections::VecDeque, sync::Arc};

use crate::base::limits;

/// The numbers of a pack and a frame, and the frame's raw bytes.
type CachedFrame = ((u32, u32), Arc<Vec<u8>>);

/// Keeps the most recently used frames.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    /// Most recent first. The byte limit allows about a dozen frames, so a linear
    /// search is fast enough.
    frames: VecDeque<CachedFrame>,
    bytes: usize,
}

impl FrameCache {
    /// Returns the frame if it is cached.
    pub(super) fn get(&mut self, key: (u32, u32)) -> Option<Arc<Vec<u8>>> {
        let at = self.frames.iter().position(|(have, _)| *have == key)?;
        let slot = self.frames.remove(at)?;
        let frame = Arc::clone(&slot.1);
        self.frames.push_front(slot);
        Some(frame)
    }

    /// Adds a frame and evicts the least recently used ones.
    pub(super) fn put(&mut self, key: (u32, u32), frame: Arc<Vec<u8>>) {
        self.bytes += frame.len();
        self.frames.push_front((key, frame));
        while self.bytes > limits::FRAME_CACHE_BYTES && self.frames.len() > 1 {
            if let Some((_, old)) = self.frames.pop_back() {
                self.bytes -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_unused_for_longest_goes_first() {
        let mut cache = FrameCache::default();
        let big = Arc::new(vec![0; limits::FRAME_CACHE_BYTES / 3]);
        for n in 0..3 {
            cache.put((0, n), Arc::clone(&big));
        }
        assert!(cache.get((0, 0)).is_some());
        cache.put((0, 3), big);
        assert!(cache.get((0, 0)).is_some());
        assert!(cache.get((0, 1)).is_none());
    }
}
