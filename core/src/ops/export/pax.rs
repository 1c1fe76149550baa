//! Encodes records of extended tar headers, for values that ustar fields cannot hold.
//!
//! A record is `LENGTH KEY=VALUE\n`, where LENGTH is the length of the whole record in
//! decimal. Values may be any bytes. Readers expect UTF-8 in `path` and similar records,
//! so names that are not UTF-8 are written in another way (see [`tar`](super::tar)).

use crate::base::time::Time;

/// The records of one header.
#[derive(Debug, Default)]
pub(super) struct PaxRecords(Vec<u8>);

impl PaxRecords {
    /// Adds a record. The key must not contain `=`.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        // The length includes its own digits.
        let mut len = rest + 1;
        while len != rest + digits(len) {
            len = rest + digits(len);
        }
        self.0.extend_from_slice(len.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Returns the concatenated records; empty if there are none.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

/// Formats a time in decimal, with a fraction only if it is not zero.
pub(super) fn time(time: Time) -> String {
    let (mut secs, mut nanos) = (i128::from(time.secs), time.nanos);
    let sign = if secs < 0 { "-" } else { "" };
    if secs < 0 {
        // `secs` is rounded down and `nanos` is added to it; the text has one sign for both. The
        // time -1 s plus 250 ms is written as `-0.75`.
        if nanos > 0 {
            secs += 1;
            nanos = 1_000_000_000 - nanos;
        }
        secs = -secs;
    }
    if nanos == 0 {
        return format!("{sign}{secs}");
    }
    format!("{sign}{secs}.{nanos:09}").trim_end_matches('0').to_owned()
}

/// Returns the key for an extended attribute. Escapes `=`, which would end the key, and
/// `%`. GNU tar reverts both.
pub(super) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            byte => key.push(*byte),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pax_record_length_includes_its_own_digits() {
        let mut records = PaxRecords::default();
        records.push(b"a", b"bcd");
        assert_eq!(records.as_bytes(), b"8 a=bcd\n");
        for value_bytes in 0..1100 {
            let mut records = PaxRecords::default();
            records.push(b"key", &vec![b'v'; value_bytes]);
            let bytes = records.as_bytes();
            let end = bytes.iter().position(|byte| *byte == b' ').unwrap();
            let len = std::str::from_utf8(&bytes[..end]).unwrap();
            assert_eq!(len.parse::<usize>().unwrap(), bytes.len());
        }
    }

    #[test]
    fn times_are_decimal_numbers() {
        for (secs, nanos, shown) in [
            (0, 0, "0"),
            (1, 500_000_000, "1.5"),
            (7, 1, "7.000000001"),
            (-1, 0, "-1"),
            (-1, 999_999_999, "-0.000000001"),
            (-2, 250_000_000, "-1.75"),
            (1 << 40, 10, "1099511627776.00000001"),
        ] {
            assert_eq!(time(Time { secs, nanos }), shown);
        }
        assert_eq!(time(Time { secs: i64::MIN, nanos: 0 }), "-9223372036854775808");
    }

    #[test]
    fn equals_signs_in_xattr_keys_are_escaped() {
        assert_eq!(xattr_key(b"user.a=b%c"), b"SCHILY.xattr.user.a%3Db%25c");
    }
}
