//! Compares snap with other tools on the same data in one run.
//!
//! `--help` explains the usage; `benches/README.md` explains what is measured and how. Only this
//! file prints: the table to standard output, progress to standard error. The exit code is 1 if a
//! tool failed or restored different data; a missed target is not a failure.

mod args;
mod bucket;
mod contest;
mod keepers;
mod machine;
mod measure;
mod place;
mod table;
mod tools;
mod web;
mod works;

use std::{cell::RefCell, process::ExitCode};

use crate::{
    args::{Args, HELP},
    place::Place,
    table::{Row, markdown},
    works::{AGAINST, Bench, WORKS, Work},
};

/// Any error that stops a comparison, as text for the user.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            talk(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let args = Args::parse(std::env::args_os().skip(1))?;
    if args.help {
        show(HELP);
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        let lines: Vec<String> =
            known(&args).iter().map(|work| format!("{:14}{}\n", work.slug, work.about)).collect();
        show(&lines.concat());
        return Ok(ExitCode::SUCCESS);
    }
    let works = chosen(&args)?;
    let snap = machine::snap(&args)?;
    let notes = RefCell::new(Vec::new());
    let note = |text: String| {
        talk(&text);
        notes.borrow_mut().push(text);
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut failed = false;
    for (number, parent) in machine::parents(&args)?.iter().enumerate() {
        let place = Place::new(parent)?;
        let bench = Bench { args: &args, place: &place, snap: &snap, note: &note };
        for work in works.iter().filter(|work| number == 0 || !work.once) {
            talk(&format!("{}: {} …", place.name, work.about));
            match (work.run)(&bench) {
                Ok(made) => rows.extend(made),
                Err(error) => note(format!("{}, {}: {error}", work.slug, place.name)),
            }
            failed |= place.clear().inspect_err(|error| talk(&error.to_string())).is_err();
        }
    }
    failed |= !notes.borrow().is_empty();
    let text = report(&args, &snap, &rows, &notes.borrow());
    show(&text);
    if let Some(path) = &args.markdown {
        fs_err::write(path, &text)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the works that can be chosen.
fn known(args: &Args) -> &'static [Work] {
    if args.against.is_some() { &AGAINST } else { &WORKS }
}

fn chosen(args: &Args) -> Result<Vec<&'static Work>> {
    let known = known(args);
    if let Some(unknown) =
        args.only.iter().find(|slug| known.iter().all(|work| work.slug != **slug))
    {
        return Err(format!("`{unknown}` is not a work; --list shows the works").into());
    }
    let wanted = |work: &&Work| args.only.is_empty() || args.only.iter().any(|s| s == work.slug);
    Ok(known.iter().filter(wanted).collect())
}

fn report(args: &Args, snap: &std::path::Path, rows: &[Row], notes: &[String]) -> String {
    let mut text = format!("{}\n{}", machine::describe(args, snap), markdown(rows));
    let missed = rows.iter().filter(|row| row.is_met() == Some(false)).count();
    let met = rows.iter().filter(|row| row.is_met() == Some(true)).count();
    text.push_str(&format!("\n{met} targets met, {missed} missed.\n"));
    for absent in machine::absent_peers() {
        text.push_str(&format!("\n- {absent} is not installed here and was left out."));
    }
    for note in notes {
        text.push_str(&format!("\n- {note}"));
    }
    text.trim_end().to_owned() + "\n"
}

#[expect(clippy::print_stdout, reason = "this program prints a table")]
fn show(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "a run takes minutes, so it reports its progress")]
fn talk(text: &str) {
    eprintln!("{text}");
}
