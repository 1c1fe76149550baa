//! Describes the measurement: the machine, the tools, and the snap under test.

use std::path::{Path, PathBuf};

use crate::{
    Result,
    args::Args,
    measure::{Call, is_installed},
    tools::PEERS,
};

/// Returns the snap to measure: the given one, or else one that is now built from this workspace,
/// so that no table shows figures of an old build.
pub(crate) fn snap(args: &Args) -> Result<PathBuf> {
    if let Some(path) = &args.snap {
        return match path.is_file() {
            true => Ok(path.clone()),
            false => Err(format!("there is no snap at {}", path.display()).into()),
        };
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Call::new(cargo)
        .args(["build", "--quiet", "--release", "--package", "snap-cli", "--bin", "snap"])
        .dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .run()?;
    let path = std::env::current_exe()?.with_file_name("snap");
    if !path.is_file() {
        return Err(format!("cargo did not build {}; run it with --release", path.display()).into());
    }
    Ok(path)
}

/// Returns the parents of the working folders: the given ones, or else the folder of this program
/// and one in memory.
pub(crate) fn parents(args: &Args) -> Result<Vec<PathBuf>> {
    if !args.on.is_empty() {
        return Ok(args.on.clone());
    }
    let program = std::env::current_exe()?;
    let disk = program.parent().unwrap_or(Path::new(".")).to_owned();
    Ok([disk, PathBuf::from("/dev/shm")].into_iter().filter(|dir| dir.is_dir()).collect())
}

/// Lists the peers that are not installed.
pub(crate) fn absent_peers() -> Vec<&'static str> {
    let mut absent: Vec<&str> = PEERS
        .iter()
        .filter(|(_, programs)| !programs.iter().all(|program| is_installed(program)))
        .map(|(name, _)| *name)
        .collect();
    absent.extend(["b3sum", "find", "rclone"].iter().filter(|name| !is_installed(name)));
    absent
}

/// Returns the lines above a table.
pub(crate) fn describe(args: &Args, snap: &Path) -> String {
    let first_line = |call: Call| {
        let text = call.output().unwrap_or_default();
        text.lines().next().unwrap_or("of unknown version").trim().to_owned()
    };
    let mut tools = vec![first_line(Call::new(snap).arg("--version"))];
    for program in ["tar", "zstd", "git", "restic", "borg", "b3sum", "rclone"] {
        let arg = if ["restic", "rclone"].contains(&program) { "version" } else { "--version" };
        if is_installed(program) {
            tools.push(first_line(Call::new(program).arg(arg)));
        }
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| fs_err::read_to_string(path).unwrap_or_default();
    let memory = read("/proc/meminfo");
    let kib: u64 =
        memory.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    let small = if args.small { "\n\nMade with --small: the figures mean nothing." } else { "" };
    format!(
        "{cores} cores, {} GiB, {}, load {}; {} timed runs each, median shown. {}.{small}\n",
        kib >> 20,
        first_line(Call::new("uname").arg("-sr")),
        read("/proc/loadavg").split_whitespace().next().unwrap_or("unknown"),
        args.runs,
        tools.join("; "),
    )
}
