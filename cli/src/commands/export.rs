//! `snap export`: writes a snapshot as tar or zip.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

use serde::Serialize;
use snap_core::ops::export::{
    self, ArchiveFormat, ExportError, ExportOptions, ExportOutcome, MetadataLoss, PathPrefix,
};

use crate::{
    commands::{pack::OutputArgs, restore},
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap export -o today.tar.zst              the last snapshot
  snap export v1.0:src -o src.zip           the content of a folder
  snap export v1.0 -o v1.tar --prefix project-1.0
  snap export latest -o - | ssh host tar -x -C /srv
  snap export latest:docs -o - --format zip > docs.zip

tar keeps everything except sockets, also owners, links, holes and devices. To
extract extended attributes, use `tar --xattrs --xattrs-include='*' -xpf FILE` or
`bsdtar -xpf FILE`. zip keeps modes, times in seconds, owner numbers and symbolic
links. In a zip, characters that are special on Windows become `%` and two hex
digits.";

/// Export a snapshot as a tar or zip archive
///
/// The suffix of the file selects the format: .tar, .tar.zst (or .tzst) or .zip. The same snapshot
/// always gives the same bytes. All content is verified; if some is damaged, the export fails and
/// leaves no file. Entries and attributes that the format does not support are skipped and counted
/// at the end. Stores and symbolic links called `.snap` are skipped and named; the exit code is
/// then 3.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Snapshot, or a folder or file in it; also FILE.snap:PATH in a bundle
    #[arg(value_name = "REV[:PATH]", default_value = "HEAD")]
    what: OsString,

    #[command(flatten)]
    output: OutputArgs,

    /// Archive format; default: from the file name, or tar for stdout
    #[arg(long, value_enum)]
    format: Option<FormatArg>,

    /// Compression level: 1 to 19 for tar.zst (default: 3), 0 to 9 for zip (default: 5)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    level: Option<i32>,

    /// Folder in the archive that contains all entries
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

    fn format(self) -> ArchiveFormat {
        match self {
            Self::Tar => ArchiveFormat::Tar,
            Self::TarZst => ArchiveFormat::TarZst,
            Self::Zip => ArchiveFormat::Zip,
        }
    }
}

pub(crate) fn run(args: &ExportArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let form = form(args)?;
    let prefix = match &args.prefix {
        None => PathPrefix::default(),
        Some(path) => {
            PathPrefix::new(path.as_bytes()).map_err(|source| CliError::Prefix { source })?
        }
    };
    let snapshot = cx.open_snapshot(&args.what)?;
    let (what, _) = restore::what(&snapshot)?;
    let on_loss = |path: &Path, loss: MetadataLoss| {
        // The observer prints a warning with the path.
        if loss == MetadataLoss::Store {
            return;
        }
        let path = text::line(path.as_os_str().as_bytes());
        cx.ui().detail(format_args!("{}: {path}", lost(loss)));
    };
    let (mut output, scratch) = args.output.open(cx)?;
    let options = ExportOptions {
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
        out.json(&ExportedJson::new(args.output.shown(), form, &outcome))?;
        out.finish()?;
    }
    summarize(args, &outcome, cx);
    Ok(match outcome.lost.contains_key(&MetadataLoss::Store) {
        true => CommandOutcome::Skipped,
        false => CommandOutcome::Success,
    })
}

/// Returns the format of the archive, and checks that it supports the compression level.
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

/// Describes a loss for a message.
fn lost(loss: MetadataLoss) -> &'static str {
    match loss {
        MetadataLoss::Socket => "skipped a socket",
        MetadataLoss::Fifo => "skipped a pipe",
        MetadataLoss::Device => "skipped a device",
        MetadataLoss::Attributes => "skipped the extended attributes",
        MetadataLoss::Link => "stored a file again for another hard link",
        MetadataLoss::Name => "rewrote a name that is special on Windows",
        _ => "skipped",
    }
}

fn summarize(args: &ExportArgs, outcome: &ExportOutcome, cx: &Context) {
    let others = match outcome.entries - outcome.files {
        0 => String::new(),
        others => format!(" and {}", size::count(others, "other entry")),
    };
    let (files, bytes) = (size::count(outcome.files, "file"), ByteCount(outcome.bytes));
    let archive = ByteCount(outcome.archive_bytes);
    let place = args.output.shown();
    cx.ui().status(format_args!("Exported {files}{others}, {bytes}, to {place} ({archive})"));
    for (loss, count) in &outcome.lost {
        let what = match loss {
            MetadataLoss::Socket => format!("skipped {}", size::count(*count, "socket")),
            MetadataLoss::Fifo => format!("skipped {}", size::count(*count, "pipe")),
            MetadataLoss::Device => format!("skipped {}", size::count(*count, "device")),
            MetadataLoss::Attributes => {
                format!("skipped the extended attributes of {}", size::count(*count, "entry"))
            }
            MetadataLoss::Link => {
                format!("stored files again for {}", size::count(*count, "hard link"))
            }
            MetadataLoss::Name => {
                let names = size::count(*count, "name");
                format!("rewrote {names} that are special on Windows, with % and hex digits")
            }
            _ => continue,
        };
        cx.ui().warning(format_args!("{what}"));
    }
}

#[derive(Serialize)]
struct ExportedJson {
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

/// Numbers of entries and attributes that are not in the archive.
#[derive(Serialize)]
struct LeftOutJson {
    sockets: u64,
    fifos: u64,
    devices: u64,
    attributes: u64,
    links: u64,
    names: u64,
    stores: u64,
}

impl ExportedJson {
    fn new(file: String, form: FormatArg, outcome: &ExportOutcome) -> Self {
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
                sockets: lost(MetadataLoss::Socket),
                fifos: lost(MetadataLoss::Fifo),
                devices: lost(MetadataLoss::Device),
                attributes: lost(MetadataLoss::Attributes),
                links: lost(MetadataLoss::Link),
                names: lost(MetadataLoss::Name),
                stores: lost(MetadataLoss::Store),
            },
        }
    }
}
