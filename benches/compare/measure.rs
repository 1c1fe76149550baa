//! Runs other programs and measures their wall time and peak memory.
//!
//! The time is measured from the start of the program to its end. Memory is measured in a separate,
//! untimed run under `/usr/bin/time`. That program reads it from `wait4`; the standard library does
//! not expose it. For a pipeline, the figure is that of its largest program.

use std::{
    ffi::{OsStr, OsString},
    io::{Read as _, Seek as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Result, table::Unit};

/// Variables that would direct a tool to another store or configuration.
const ELSEWHERE: [&str; 12] = [
    "SNAP_STORE",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "BORG_REPO",
    "RESTIC_REPOSITORY",
    "RCLONE_CONFIG",
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL_S3",
    "AWS_CA_BUNDLE",
    "HTTP_PROXY",
    "http_proxy",
];

/// A program to run, with its arguments and environment.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    program: OsString,
    args: Vec<OsString>,
    vars: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    /// The file for its standard output; without one the output is discarded.
    file: Option<PathBuf>,
    good_codes: Vec<i32>,
}

impl Call {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let (args, vars) = (Vec::new(), Vec::new());
        Self { program, args, vars, dir: None, file: None, good_codes: vec![0] }
    }

    /// Makes a call of a shell command; `$1`, `$2` … are the arguments added to it.
    pub(crate) fn shell(line: &str) -> Self {
        Self::new("sh").args(["-c", line, "sh"])
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn var(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.vars.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Sets all of these variables.
    pub(crate) fn vars(mut self, vars: Vec<(&'static str, String)>) -> Self {
        self.vars.extend(vars.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Writes standard output to a file instead of discarding it.
    pub(crate) fn into_file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Accepts this exit code as success too.
    pub(crate) fn or_code(mut self, code: i32) -> Self {
        self.good_codes.push(code);
        self
    }

    /// Runs the program to its end and returns the duration.
    pub(crate) fn time(&self) -> Result<Duration> {
        let mut errors = tempfile::tempfile()?;
        let mut command = self.command(&self.program, &self.args);
        command.stdout(match &self.file {
            Some(path) => fs_err::File::create(path)?.into_file().into(),
            None => Stdio::null(),
        });
        command.stderr(errors.try_clone()?);
        let start = Instant::now();
        let status = command.status().map_err(|error| format!("{:?}: {error}", self.program))?;
        let taken = start.elapsed();
        if status.code().is_some_and(|code| self.good_codes.contains(&code)) {
            return Ok(taken);
        }
        let mut text = Vec::new();
        errors.rewind()?;
        errors.read_to_end(&mut text)?;
        Err(self.failure(&format!("{status}"), &text).into())
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self) -> Result<()> {
        self.time().map(drop)
    }

    /// Runs the program to its end and returns its peak memory in bytes; `None` if that cannot be
    /// measured.
    pub(crate) fn peak_bytes(&self) -> Result<Option<u64>> {
        const TIME: &str = "/usr/bin/time";
        if !Path::new(TIME).exists() {
            return self.run().map(|()| None);
        }
        let report = tempfile::NamedTempFile::new()?;
        let mut call = Self { program: TIME.into(), args: Vec::new(), ..self.clone() }
            .args(["--quiet", "-f", "%M", "-o"])
            .arg(report.path())
            .arg(&self.program);
        call.args.extend(self.args.iter().cloned());
        call.run()?;
        let text = fs_err::read_to_string(report.path())?;
        let kib: u64 = text.trim().parse().map_err(|_| format!("{TIME} reported {text:?}"))?;
        Ok(Some(kib * 1024))
    }

    /// Runs the program to its end and returns its standard output.
    pub(crate) fn output(&self) -> Result<String> {
        let output = self.command(&self.program, &self.args).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(self.failure(&output.status.to_string(), &output.stderr).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, program: &OsStr, args: &[OsString]) -> Command {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        // Variables of the caller's shell must not direct a tool to another store.
        for name in ELSEWHERE {
            command.env_remove(name);
        }
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    fn failure(&self, how: &str, errors: &[u8]) -> String {
        let text = String::from_utf8_lossy(errors);
        let end: Vec<&str> = text.lines().rev().take(4).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        let args: Vec<_> = self.args.iter().map(|arg| arg.to_string_lossy()).collect();
        let program = self.program.to_string_lossy();
        format!("`{program} {}`: {how}: {}", args.join(" "), end.join("; "))
    }
}

/// Returns true if `program` is in the search path.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The times of one program in one contest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    secs: Vec<f64>,
}

impl Samples {
    pub(crate) fn push(&mut self, taken: Duration) {
        let at = self.secs.partition_point(|&secs| secs < taken.as_secs_f64());
        self.secs.insert(at, taken.as_secs_f64());
    }

    /// Returns the median; `None` without samples.
    pub(crate) fn median_secs(&self) -> Option<f64> {
        let middle = self.secs.len() / 2;
        let upper = self.secs.get(middle)?;
        if self.secs.len() % 2 == 1 {
            return Some(*upper);
        }
        Some(f64::midpoint(self.secs[middle - 1], *upper))
    }

    /// Returns the minimum and the maximum; `None` without samples.
    pub(crate) fn range_secs(&self) -> Option<(f64, f64)> {
        Some((*self.secs.first()?, *self.secs.last()?))
    }

    /// Formats the range for a table.
    pub(crate) fn shown_range(&self) -> String {
        let shown =
            |(least, most)| format!("({} .. {})", Unit::Secs.show(least), Unit::Secs.show(most));
        self.range_secs().map_or(String::new(), shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(millis: &[u64]) -> Samples {
        let mut samples = Samples::default();
        millis.iter().for_each(|&millis| samples.push(Duration::from_millis(millis)));
        samples
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(samples(&[]).median_secs(), None);
        assert_eq!(samples(&[7]).median_secs(), Some(0.007));
        assert_eq!(samples(&[900, 1, 500]).median_secs(), Some(0.5));
        assert_eq!(samples(&[4000, 1000, 3000, 2000]).median_secs(), Some(2.5));
        assert_eq!(samples(&[900, 1, 500]).range_secs(), Some((0.001, 0.9)));
    }

    #[test]
    fn a_program_that_fails_is_an_error_that_shows_its_last_words() {
        let error = Call::shell("echo oh no >&2; exit 3").run().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("oh no"), "{error}");
        assert!(Call::shell("exit 3").or_code(3).run().is_ok());
        assert!(Call::new("/nowhere/at-all").run().is_err());
    }

    #[test]
    fn time_is_that_of_the_program() {
        let taken = Call::shell("sleep 0.05").time().unwrap();
        assert!((50..1_000).contains(&taken.as_millis()), "{taken:?}");
    }

    #[test]
    fn peak_memory_is_that_of_the_program_and_not_of_this_process() {
        let ballast = vec![1_u8; 200 << 20];
        if let Some(peak) = Call::new("true").peak_bytes().unwrap() {
            assert!(peak > 100 << 10 && peak < 50 << 20, "{peak}");
        }
        let line = "dd if=/dev/zero of=/dev/null bs=100M count=1";
        if let Some(peak) = Call::shell(line).peak_bytes().unwrap() {
            assert!(peak > 100 << 20 && peak < 150 << 20, "{peak}");
        }
        assert_eq!(ballast.last(), Some(&1));
    }

    #[test]
    fn output_goes_to_the_file_that_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        Call::shell("echo $WORD").var("WORD", "here").into_file(file.path()).run().unwrap();
        assert_eq!(fs_err::read_to_string(file.path()).unwrap(), "here\n");
    }

    #[test]
    fn arguments_of_a_shell_line_are_not_split() {
        let text = Call::shell("printf '%s' \"$1\"").arg("two words").output().unwrap();
        assert_eq!(text, "two words");
    }
}
