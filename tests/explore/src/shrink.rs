//! Minimises a failing sequence by delta debugging over its operations.

use crate::search::{Failure, Fault};

/// Removes operations while the sequence still fails with the same kind of fault (Zeller's ddmin
/// algorithm). Returns the remaining operations and their fault.
pub(crate) fn minimal<Op: Clone>(
    ops: &[Op],
    fault: Fault,
    tries: usize,
    run: impl Fn(&[Op]) -> Result<(), Failure>,
) -> (Vec<Op>, Fault) {
    let (mut ops, mut fault) = (ops.to_vec(), fault);
    let mut pieces = 2;
    while ops.len() > 1 {
        let size = ops.len().div_ceil(pieces);
        let smaller = (0..ops.len()).step_by(size).find_map(|start| {
            let end = (start + size).min(ops.len());
            let rest = [&ops[..start], &ops[end..]].concat();
            let (last, fault) = fails_alike(&rest, &fault, tries, &run)?;
            Some((rest[..=last].to_vec(), fault))
        });
        match smaller {
            Some((rest, found)) => {
                (ops, fault) = (rest, found);
                pieces = (pieces - 1).max(2);
            }
            None if size == 1 => break,
            None => pieces = (pieces * 2).min(ops.len()),
        }
    }
    (ops, fault)
}

fn fails_alike<Op>(
    ops: &[Op],
    fault: &Fault,
    tries: usize,
    run: impl Fn(&[Op]) -> Result<(), Failure>,
) -> Option<Failure> {
    (0..tries).find_map(|_| run(ops).err().filter(|(_, found)| found.kind == fault.kind))
}
