//! Results as rows of a markdown table, and checks of their targets.

use std::fmt::Write as _;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds of wall time.
    Secs,
    /// Bytes on disk, shown in units of 1,000,000.
    Stored,
    /// Bytes of memory, shown in units of 1,048,576.
    Memory,
    /// A count.
    Count,
    /// A ratio of two figures.
    Ratio,
}

impl Unit {
    /// Formats a figure with its unit.
    pub(crate) fn show(self, amount: f64) -> String {
        match self {
            Self::Secs if amount < 0.1 => format!("{:.1} ms", amount * 1e3),
            Self::Secs if amount < 10.0 => format!("{amount:.3} s"),
            Self::Secs => format!("{amount:.1} s"),
            Self::Stored => format!("{:.2} MB", amount / 1e6),
            Self::Memory => format!("{:.1} MiB", amount / f64::from(1 << 20)),
            Self::Count => format!("{amount:.0}"),
            Self::Ratio => format!("{amount:.2}"),
        }
    }
}

/// The target that an issue sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At most this factor times the figure of a peer in the same run.
    Times(f64, &'static str),
    /// At most this figure.
    AtMost(f64),
    /// No target; the figure is only shown.
    None,
}

/// A figure of snap beside those of its peers.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) place: String,
    pub(crate) measure: &'static str,
    pub(crate) unit: Unit,
    /// `None` if snap failed.
    pub(crate) snap: Option<f64>,
    /// Text after the figure, such as the range of times.
    pub(crate) detail: String,
    pub(crate) peers: Vec<(String, f64)>,
    pub(crate) target: Target,
}

impl Row {
    /// Returns snap's figure divided by that of the peer in its target.
    fn ratio(&self) -> Option<f64> {
        let Target::Times(_, peer) = self.target else { return None };
        let (_, figure) = self.peers.iter().find(|(name, _)| name == peer)?;
        (*figure > 0.0).then_some(self.snap? / figure)
    }

    /// Returns true if the target is met; `None` without a target or without a figure.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::Times(factor, _) => Some(self.ratio()? <= factor),
            Target::AtMost(limit) => Some(self.snap? <= limit),
            Target::None => None,
        }
    }

    fn cells(&self) -> [String; 8] {
        let snap = match self.snap {
            Some(figure) => format!("{} {}", self.unit.show(figure), self.detail),
            None => "failed".to_owned(),
        };
        let peers: Vec<String> = self
            .peers
            .iter()
            .map(|(name, figure)| format!("{name} {}", self.unit.show(*figure)))
            .collect();
        let target = match self.target {
            Target::Times(factor, peer) => format!("≤ {factor} × {peer}"),
            Target::AtMost(limit) => format!("≤ {}", self.unit.show(limit)),
            Target::None => "–".to_owned(),
        };
        let met = match (self.is_met(), self.target) {
            (Some(true), _) => "yes",
            (Some(false), _) => "**no**",
            (None, Target::None) => "–",
            (None, _) => "**not measured**",
        };
        let ratio = self.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        [
            self.work.clone(),
            self.place.clone(),
            self.measure.to_owned(),
            snap.trim_end().to_owned(),
            peers.join(", "),
            ratio,
            target,
            met.to_owned(),
        ]
    }
}

/// Formats the rows as a markdown table.
pub(crate) fn markdown(rows: &[Row]) -> String {
    const HEAD: [&str; 8] = ["work", "where", "measure", "snap", "peers", "ratio", "target", "met"];
    let cells: Vec<[String; 8]> = rows.iter().map(Row::cells).collect();
    let widths: [usize; 8] = std::array::from_fn(|column| {
        let rows = cells.iter().map(|row| row[column].chars().count());
        rows.max().unwrap_or(0).max(HEAD[column].len())
    });
    let mut table = String::new();
    let mut line = |row: [&str; 8]| {
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(table, "| {cell:width$} ");
        }
        table.push_str("|\n");
    };
    line(HEAD);
    let rules = widths.map(|width| "-".repeat(width));
    line(std::array::from_fn(|column| rules[column].as_str()));
    for row in &cells {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(snap: Option<f64>, target: Target) -> Row {
        Row {
            work: "restore".into(),
            place: "tmpfs".into(),
            measure: "time",
            unit: Unit::Secs,
            snap,
            detail: "(0.018..12)".into(),
            peers: vec![("git".into(), 4.3), ("cp -a".into(), 0.25)],
            target,
        }
    }

    #[test]
    fn a_ratio_is_taken_to_the_peer_that_the_target_names() {
        assert_eq!(row(Some(0.2), Target::Times(0.8, "cp -a")).is_met(), Some(true));
        assert_eq!(row(Some(0.21), Target::Times(0.8, "cp -a")).is_met(), Some(false));
        assert_eq!(row(Some(0.2), Target::Times(0.8, "borg")).is_met(), None);
        assert_eq!(row(None, Target::Times(0.8, "cp -a")).is_met(), None);
    }

    #[test]
    fn a_limit_is_met_up_to_itself() {
        assert_eq!(row(Some(0.5), Target::AtMost(0.5)).is_met(), Some(true));
        assert_eq!(row(Some(0.51), Target::AtMost(0.5)).is_met(), Some(false));
        assert_eq!(row(Some(9.0), Target::None).is_met(), None);
    }

    #[test]
    fn a_table_is_markdown_with_aligned_columns() {
        let rows = [row(Some(0.025), Target::Times(0.8, "cp -a")), row(None, Target::AtMost(0.03))];
        let table = markdown(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()));
        for part in ["25.0 ms (0.018..12)", "git 4.300 s, cp -a 0.250 s", "0.10", "≤ 0.8 × cp -a"]
        {
            assert!(lines[2].contains(part), "{part}: {}", lines[2]);
        }
        assert!(lines[3].contains("| failed") && lines[3].contains("**not measured**"));
    }

    #[test]
    fn figures_are_shown_in_their_unit() {
        assert_eq!(Unit::Secs.show(12.34), "12.3 s");
        assert_eq!(Unit::Stored.show(14_900_000.0), "14.90 MB");
        assert_eq!(Unit::Memory.show(f64::from(64 << 20)), "64.0 MiB");
        assert_eq!(Unit::Count.show(60.0), "60");
        assert_eq!(Unit::Ratio.show(1.504), "1.50");
    }
}
