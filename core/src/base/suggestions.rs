//! Suggestions for mistyped names.

/// Maximum number of suggestions.
const MOST: usize = 3;

/// Returns the names that are similar to `text`, most similar first.
pub fn similar_names<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let near = names.map(|name| (distance(text, name), name));
    // Allow one typo, and one more for every four bytes of the name.
    let mut near: Vec<_> = near.filter(|(far, name)| *far <= 1 + name.len() / 4).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, name)| name.to_owned()).collect()
}

/// Computes the Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_levenshtein() {
        assert_eq!(distance("main", "main"), 0);
        assert_eq!(distance("mian", "main"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_similar_name_is_suggested_for_a_misspelled_one() {
        let names = ["commit.author", "commit.host", "ui.color"];
        assert_eq!(similar_names("commit.authr", names.into_iter()), ["commit.author"]);
        assert_eq!(similar_names("zebra", names.into_iter()), [""; 0]);
    }
}
