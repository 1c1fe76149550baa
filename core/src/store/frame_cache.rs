//! Expanded frames that were read last, up to a number of bytes.

use std::{collections::VecDeque, sync::Arc};

use crate::base::limits;

/// A frame's place and its raw bytes.
type Slot = ((u32, u32), Arc<Vec<u8>>);

/// Keeps the frames that were read last.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    /// Most recent first; a dozen at most, so a list will do.
    frames: VecDeque<Slot>,
    bytes: usize,
}

impl FrameCache {
    /// The frame, if it is here.
    pub(super) fn get(&mut self, key: (u32, u32)) -> Option<Arc<Vec<u8>>> {
        let at = self.frames.iter().position(|(have, _)| *have == key)?;
        let slot = self.frames.remove(at)?;
        let frame = Arc::clone(&slot.1);
        self.frames.push_front(slot);
        Some(frame)
    }

    /// Keeps a frame and lets go of the oldest.
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
