//! How much of a pack is dead, and which packs are therefore written again. Collections of local and
//! of remote stores have the same rule.

/// Part of a pack's bytes that must be dead before the pack is rewritten.
const DEAD_PART: f64 = 0.25;

/// How much of a pack is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackUse {
    /// Length of the pack.
    pub file_bytes: u64,
    /// Bytes of all objects, before compression.
    pub bytes: u64,
    /// Bytes of dead objects, before compression.
    pub dead_bytes: u64,
    /// True if a dead object was purged. Then the pack is rewritten, whatever part of it is dead.
    pub has_purged: bool,
}

impl PackUse {
    /// Returns true if a quarter of the pack is dead, or if a purged object is.
    pub fn is_worth_rewriting(&self) -> bool {
        self.has_purged || self.dead_part() >= DEAD_PART
    }

    /// Estimates the length of the pack without its dead objects.
    pub fn live_file_bytes(&self) -> u64 {
        (self.file_bytes as f64 * (1.0 - self.dead_part())) as u64
    }

    /// Returns the part of the pack's bytes, before compression, that is dead.
    fn dead_part(&self) -> f64 {
        self.dead_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// Chooses packs to rewrite: those with purged objects, and others of at most `most_bytes` in total,
/// those with the largest dead part first.
pub fn choose_rewritten<T>(
    mut candidates: Vec<(PackUse, T)>,
    most_bytes: Option<u64>,
) -> Vec<(PackUse, T)> {
    candidates.sort_by(|(a, _), (b, _)| b.dead_part().total_cmp(&a.dead_part()));
    let mut left_bytes = most_bytes.unwrap_or(u64::MAX);
    candidates.retain(|(pack, _)| match left_bytes.checked_sub(pack.file_bytes) {
        _ if pack.has_purged => true,
        Some(left) => {
            left_bytes = left;
            true
        }
        None => false,
    });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packs_with_the_largest_dead_part_are_rewritten_within_the_limit() {
        let pack = |file_bytes, dead_bytes| PackUse {
            file_bytes,
            bytes: 100,
            dead_bytes,
            has_purged: false,
        };
        assert!(pack(9, 25).is_worth_rewriting() && !pack(9, 24).is_worth_rewriting());
        assert!(!PackUse::default().is_worth_rewriting());
        assert_eq!(pack(80, 25).live_file_bytes(), 60);
        let packs = [(pack(50, 30), 'a'), (pack(60, 90), 'b'), (pack(40, 30), 'c')];
        let chosen = |most_bytes| {
            let chosen = choose_rewritten(packs.to_vec(), most_bytes);
            chosen.into_iter().map(|(_, name)| name).collect::<String>()
        };
        assert_eq!(chosen(None), "bac");
        assert_eq!(chosen(Some(100)), "bc");
        assert_eq!(chosen(Some(30)), "");
        let purged = PackUse { has_purged: true, ..pack(70, 1) };
        assert!(purged.is_worth_rewriting());
        assert_eq!(choose_rewritten(vec![(purged, 'd')], Some(30)).len(), 1);
    }
}
