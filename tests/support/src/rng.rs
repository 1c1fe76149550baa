//! A small seeded pseudo-random number generator.
//!
//! The algorithm is xoshiro256** 1.0, with its state filled by SplitMix64. Both are by Blackman and
//! Vigna and in the public domain: <https://prng.di.unimi.it/>. It is good enough for test data and
//! unsuitable for secrets. The sequence of a seed never changes, so that sizes measured on earlier
//! data stay comparable.

/// A generator of the sequence for one seed.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Starts the sequence of `seed`, which may be any value, including zero.
    pub fn new(seed: u64) -> Self {
        let mut seeder = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut seeder)) }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a number in `0..bound`; `bound` must not be zero.
    ///
    /// Multiplies instead of dividing, so small numbers are favoured by at most
    /// `bound` / 2^64, which no test notices.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into a list of `len` items; `len` must not be zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Overwrites `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Combines two numbers that identify an item, such as a seed and a position, into a new seed.
pub fn mix(seed: u64, position: u64) -> u64 {
    let mut state = seed ^ position.wrapping_mul(0xd134_2543_de82_ef95);
    split_mix(&mut state)
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_the_published_sequence() {
        // The first outputs for seed 1234567, from the Rosetta Code task "Pseudo-random
        // numbers/Splitmix64".
        let mut state = 1_234_567;
        let made: Vec<u64> = (0..3).map(|_| split_mix(&mut state)).collect();
        assert_eq!(
            made,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn xoshiro_gives_the_published_sequence() {
        // The first outputs for the state 1, 2, 3, 4, as the rand_xoshiro crate pins them from the
        // authors' C code.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let made: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(made, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn random_indexes_cover_the_whole_range() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.index(5)] = true;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn a_seed_determines_the_sequence() {
        let bytes = |seed| {
            let mut out = [0; 21];
            Rng::new(seed).fill(&mut out);
            out
        };
        assert_eq!(bytes(3), bytes(3));
        assert_ne!(bytes(3), bytes(4));
        assert_ne!(mix(1, 2), mix(2, 1));
    }
}
