//! The first commit of a real source tree: at least 15,000 files and 250 MB.
//!
//! The tree is given by `--source`, or gathered from sources that exist on every machine that
//! builds snap: the cargo registry, then C headers and Python modules until there is enough. A copy
//! in the working folder is measured.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Bench;
use crate::{
    Result,
    contest::hold,
    measure::Call,
    place::{count, empty},
    table::{Row, Target},
};

/// Minimum size of the tree, in files and bytes.
const ENOUGH: (u64, u64) = (15_000, 250_000_000);
const ENOUGH_SMALL: (u64, u64) = (500, 5_000_000);

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let data = bench.place.join("data");
    let Some((files, mb)) = fill(bench, &data)? else { return Ok(Vec::new()) };
    bench.place.settle();
    let tools = bench.tools(&data, &["tar+zstd", "git", "restic", "borg"], "tar+zstd");
    let savers = tools.iter().map(|tool| bench.saver(&**tool, &data, true)).collect();
    let scores = hold(bench.place, bench.args.runs, |_| Ok(()), savers)?;
    let work = format!("source-tree ({files} files, {mb} MB)");
    let rows = bench.rows(&work, &scores);
    Ok(vec![
        rows.time(Target::Times(1.0, "tar+zstd")),
        rows.stored(&tools, Target::Times(1.1, "tar+zstd")),
        rows.memory(Target::None),
    ])
}

/// Fills `data` with a source tree. Returns its number of files and MB; `None` if there is no
/// source.
pub(super) fn fill(bench: &Bench<'_>, data: &Path) -> Result<Option<(u64, u64)>> {
    let enough = if bench.args.small { ENOUGH_SMALL } else { ENOUGH };
    let (files, bytes) = match &bench.args.source {
        Some(source) => {
            copy(&source.join("."), data)?;
            count(data)?
        }
        None => gather(data, enough)?,
    };
    let mb = bytes / 1_000_000;
    if files < enough.0 || bytes < enough.1 {
        let note =
            format!("source-tree: only {files} files, {mb} MB found; give one with --source");
        (bench.note)(note);
    }
    Ok((files > 0).then_some((files, mb)))
}

/// Copies folders of source code into `data` until there is enough.
fn gather(data: &Path, enough: (u64, u64)) -> Result<(u64, u64)> {
    empty(data)?;
    let (mut files, mut bytes) = (0, 0);
    for folder in candidates() {
        if files >= enough.0 && bytes >= enough.1 {
            break;
        }
        let name = folder.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let copied = data.join(name);
        copy(&folder.join("."), &copied)?;
        let (more_files, more_bytes) = count(&copied)?;
        files += more_files;
        bytes += more_bytes;
    }
    Ok((files, bytes))
}

fn candidates() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".cargo"))
    });
    let registries = cargo.map(|cargo| folders(&cargo.join("registry/src"))).unwrap_or_default();
    let mut found: Vec<PathBuf> = registries.iter().flat_map(|one| folders(one)).collect();
    let system = ["/usr/include", "/usr/lib/python3", "/usr/share/perl"];
    found.extend(system.iter().flat_map(|folder| folders(Path::new(folder))));
    found
}

/// Lists the folders in `dir`, in order; empty if `dir` does not exist.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.is_dir() && !path.is_symlink()).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    Call::new("cp").arg("-a").arg(from).arg(to).run()
}
