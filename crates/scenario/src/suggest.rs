//! Suggestions: the known word closest to an unknown one.

/// Words from other tools, with their names here.
const SYNONYMS: [(&str, &str); 14] = [
    ("bandwidth", "rate"),
    ("bw", "rate"),
    ("capacity", "rate"),
    ("latency", "delay"),
    ("limit", "queue_limit"),
    ("queue", "queue_limit"),
    ("buffer", "queue_limit"),
    ("profile", "stack"),
    ("congestion_control", "congestion"),
    ("p", "good_to_bad"),
    ("r", "bad_to_good"),
    ("duration", "time_limit"),
    ("source", "from"),
    ("destination", "to"),
];

/// The word of `known` most similar to `word`.
pub(crate) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let folded = |word: &str| word.to_lowercase().replace('-', "_");
    let folded_word = folded(word);
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == folded_word).map(|(_, ours)| *ours);
    if let Some(found) = known.iter().find(|&&known| Some(known) == synonym || folded(known) == folded_word) {
        return Some(found);
    }
    let most = (word.chars().count() / 3).max(1);
    let distances = known.iter().map(|known| (distance(&folded_word, &folded(known)), *known));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The edit distance with transpositions (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Row i, column j: the distance between the first i letters of a and the first j of b. The edges are correct; the
    // rest is filled in below.
    let mut rows: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        let known = ["rate", "delay", "queue_limit", "between"];
        for (word, meant) in [
            ("dealy", Some("delay")),
            ("Delay", Some("delay")),
            ("queue-limit", Some("queue_limit")),
            ("bandwidth", Some("rate")),
            ("limit", Some("queue_limit")),
            ("betwen", Some("between")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(closest(word, &known), meant, "{word}");
        }
        assert_eq!(closest("rat", &[]), None);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
