//! `snap export`: write a snapshot as tar or zip.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

use serde::Serialize;
use snap_core::ops::export::{self, ExportError, Format, Loss, Options, Outcome, Prefix};

use crate::{
    commands::{pack::OutputArgs, restore},
    context::Context,
    report::{CliError, Done},
    ui::{size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap export latest -o today.tar.zst       a whole snapshot
  snap export v1.0:src -o src.zip           what a folder holds
  snap export v1.0 -o v1.tar --prefix project-1.0
  snap export latest -o - | ssh host tar -x -C /srv
  snap export latest:docs -o - --format zip > docs.zip

tar keeps all that a snapshot has but sockets: owners, times in nanoseconds,
links, holes, devices, extended attributes (`tar --xattrs
--xattrs-include='*' -xpf FILE` and `bsdtar -xpf FILE` bring them back). zip keeps
modes, times in seconds, owner numbers and symbolic links. A name that Windows would
resolve (backslash, colon, CON, a dot or space at the end) is rewritten in a zip, with
`%` and two hex digits for each such character.";

/// Write a snapshot as tar or zip, for other tools to read
///
/// The form follows from how the file ends: .tar, .tar.zst (or .tzst) or .zip. One
/// snapshot gives the same bytes each time. Every content is checked on its
/// way; where one is damaged the export fails and there is no file. What the
/// form has no room for is left out and counted at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Snapshot, or a folder or file in it; also FILE.snap:PATH, in a bundle
    #[arg(value_name = "REV[:PATH]")]
    what: OsString,

    #[command(flatten)]
    output: OutputArgs,

    /// Form of the archive, whatever the file is called; of stdout tar
    #[arg(long, value_enum)]
    format: Option<FormatArg>,

    /// Compression: 1 to 19 for tar.zst (else 3), 0 to 9 for zip (else 5)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    level: Option<i32>,

    /// Folder in the archive that everything is put into
    #[arg(long, value_name = "DIR")]
    prefix: Option<OsString>,
}

/// Form of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FormatArg {
    /// Not compressed
    Tar,
    /// Compressed with zstd
    #[value(name = "tar.zst")]
    TarZst,
    /// Each file compressed with deflate
    Zip,
}

impl FormatArg {
    fn of_file(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_bytes().to_ascii_lowercase();
        let ends = |ending: &[u8]| name.ends_with(ending);
        match () {
            () if ends(b".tar") => Some(Self::Tar),
            () if ends(b".tar.zst") || ends(b".tzst") => Some(Self::TarZst),
            () if ends(b".zip") => Some(Self::Zip),
            () => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::TarZst => "tar.zst",
            Self::Zip => "zip",
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Tar => Format::Tar,
            Self::TarZst => Format::TarZst,
            Self::Zip => Format::Zip,
        }
    }
}

pub(crate) fn run(args: &ExportArgs, cx: &Context) -> Result<Done, CliError> {
    let form = form(args)?;
    let prefix = match &args.prefix {
        None => Prefix::default(),
        Some(path) => Prefix::new(path.as_bytes()).map_err(|source| CliError::Prefix { source })?,
    };
    let snapshot = cx.open_snapshot(&args.what)?;
    let (what, _) = restore::what(&snapshot)?;
    let on_loss = |path: &Path, loss: Loss| {
        let path = text::line(path.as_os_str().as_bytes());
        cx.ui().detail(format_args!("{}: {path}", lost(loss)));
    };
    let (mut output, scratch) = args.output.open(cx)?;
    let options = Options {
        format: form.format(),
        level: args.level,
        prefix,
        mtime: snapshot.commit.time,
        scratch,
        scratch_bytes: u64::MAX,
        on_loss: Some(&on_loss),
    };
    let progress = cx.progress();
    let outcome = export::run(snapshot.store(), &what, &mut output, &options, &progress);
    let outcome = outcome.map_err(|error| match error {
        ExportError::Output(source) => CliError::ExportTo { file: args.output.shown(), source },
        other => other.into(),
    })?;
    output.finish()?;
    drop(progress);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&OutcomeJson::new(args.output.shown(), form, &outcome))?;
        out.finish()?;
    }
    summarize(args, &outcome, cx);
    Ok(Done::Well)
}

/// Form of the archive, once level and form go together.
fn form(args: &ExportArgs) -> Result<FormatArg, CliError> {
    let output = &args.output;
    let by_name = || match output.is_stdout() {
        true => Some(FormatArg::Tar),
        false => FormatArg::of_file(output.path()),
    };
    let unknown = || CliError::UnknownFormat { path: output.shown() };
    let form = args.format.or_else(by_name).ok_or_else(unknown)?;
    let has = |level| form.format().levels().is_some_and(|levels| levels.contains(&level));
    match args.level.filter(|level| !has(*level)) {
        Some(level) => Err(CliError::NoLevel { format: form.name(), level }),
        None => Ok(form),
    }
}

/// What happened to an entry.
fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::Socket => "left out a socket",
        Loss::Fifo => "left out a pipe",
        Loss::Device => "left out a device",
        Loss::Attributes => "left out the extended attributes",
        Loss::Link => "stored a file again under a further name",
        Loss::Name => "rewrote a name that Windows would resolve",
        _ => "left out",
    }
}

fn summarize(args: &ExportArgs, outcome: &Outcome, cx: &Context) {
    let others = match outcome.entries - outcome.files {
        0 => String::new(),
        others => format!(" and {}", size::count(others, "other entry")),
    };
    let (files, bytes) = (size::count(outcome.files, "file"), Size(outcome.bytes));
    let archive = Size(outcome.archive_bytes);
    let place = args.output.shown();
    cx.ui().status(format_args!("Exported {files}{others}, {bytes}, to {place} ({archive})"));
    for (loss, count) in &outcome.lost {
        let what = match loss {
            Loss::Socket => format!("left out {}", size::count(*count, "socket")),
            Loss::Fifo => format!("left out {}", size::count(*count, "pipe")),
            Loss::Device => format!("left out {}", size::count(*count, "device")),
            Loss::Attributes => {
                format!("left out the extended attributes of {}", size::count(*count, "entry"))
            }
            Loss::Link => {
                format!("stored files again under {}", size::count(*count, "further name"))
            }
            Loss::Name => {
                let names = size::count(*count, "name");
                format!("rewrote {names} that Windows would resolve, with % and hex digits")
            }
            _ => continue,
        };
        cx.ui().warning(format_args!("{what}"));
    }
}

#[derive(Serialize)]
struct OutcomeJson {
    version: u32,
    r#type: &'static str,
    file: String,
    format: &'static str,
    entries: u64,
    files: u64,
    bytes: u64,
    archive_bytes: u64,
    left_out: LeftOutJson,
}

/// What the archive has no room for.
#[derive(Serialize)]
struct LeftOutJson {
    sockets: u64,
    fifos: u64,
    devices: u64,
    attributes: u64,
    links: u64,
    names: u64,
}

impl OutcomeJson {
    fn new(file: String, form: FormatArg, outcome: &Outcome) -> Self {
        let lost = |loss| outcome.lost.get(&loss).copied().unwrap_or_default();
        Self {
            version: 1,
            r#type: "exported",
            file,
            format: form.name(),
            entries: outcome.entries,
            files: outcome.files,
            bytes: outcome.bytes,
            archive_bytes: outcome.archive_bytes,
            left_out: LeftOutJson {
                sockets: lost(Loss::Socket),
                fifos: lost(Loss::Fifo),
                devices: lost(Loss::Device),
                attributes: lost(Loss::Attributes),
                links: lost(Loss::Link),
                names: lost(Loss::Name),
            },
        }
    }
}
