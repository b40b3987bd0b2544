//! Checks: functions that return a verdict with a finding.

use holdover_scenario::statistics::{Difference, Mean};
use rhai::{Array, Dynamic, Engine, EvalAltResult, Map};

use super::{Fallible, number, numbers, short};

/// The key of the verdict without tolerance, in the findings of checks that have one.
pub(super) const STRICT: &str = "strict";

pub(super) fn register(engine: &mut Engine) {
    engine.register_fn("within", |x: Dynamic, least: Dynamic, most: Dynamic| -> Fallible<Map> {
        let (least, most) = (number(&least)?, number(&most)?);
        range_check(&numbers(&x)?, least, most, &format!("expected {} to {}", short(least), short(most)))
    });
    engine.register_fn("within", |x: Dynamic, least: Dynamic, most: Dynamic, share: f64| -> Fallible<Map> {
        widened_range(&numbers(&x)?, (number(&least)?, number(&most)?), share)
    });
    engine.register_fn("at_least", |x: Dynamic, least: Dynamic| -> Fallible<Map> {
        let least = number(&least)?;
        range_check(&numbers(&x)?, least, f64::INFINITY, &format!("expected at least {}", short(least)))
    });
    engine.register_fn("at_most", |x: Dynamic, most: Dynamic| -> Fallible<Map> {
        let most = number(&most)?;
        range_check(&numbers(&x)?, f64::NEG_INFINITY, most, &format!("expected at most {}", short(most)))
    });
    engine.register_fn("near", |x: Dynamic, expected: Dynamic, share: f64| -> Fallible<Map> {
        let expected = number(&expected)?;
        let slack = expected.abs() * share;
        let words = format!("expected {} ± {} %", short(expected), short(share * 100.0));
        range_check(&numbers(&x)?, expected - slack, expected + slack, &words)
    });
    engine.register_fn("less", less);
    engine.register_fn("alike", |a: Array, b: Array| significance(a, b, |differs, _| !differs));
    engine.register_fn("above", |a: Array, b: Array| {
        significance(a, b, |differs, difference| differs && difference < 0.0)
    });
    engine.register_fn("falling", |list: Array, slack: f64| trend(&list, slack, -1.0));
    engine.register_fn("rising", |list: Array, slack: f64| trend(&list, slack, 1.0));
    engine.register_fn("fails", |why: &str| finding(false, why));
    engine.register_fn("every", |checks: Array| -> Fallible<Map> {
        let (mut holds, mut strict) = (true, None);
        let mut found = Vec::new();
        for check in checks {
            let map = check.try_cast::<Map>().ok_or("every takes a list of checks")?;
            let flag = |key: &str| map.get(key).and_then(|flag| flag.as_bool().ok());
            holds &= flag("holds").ok_or("every takes a list of checks")?;
            strict = flag(STRICT).map(|one| one && strict.unwrap_or(true)).or(strict);
            found.push(map.get("found").map(ToString::to_string).unwrap_or_default());
        }
        let mut map = finding(holds, &found.join("; "));
        if let Some(strict) = strict {
            map.insert(STRICT.into(), (strict && holds).into());
        }
        Ok(map)
    });
}

/// Whether all numbers are in a range; if not, the finding has the largest deviation.
fn range_check(list: &[f64], least: f64, most: f64, expected: &str) -> Fallible<Map> {
    let lowest = list.iter().copied().reduce(f64::min).ok_or("there is nothing to check")?;
    let highest = list.iter().copied().reduce(f64::max).ok_or("there is nothing to check")?;
    let found = if lowest == highest { short(lowest) } else { format!("{} to {}", short(lowest), short(highest)) };
    let (below, above) = ((least - lowest).max(0.0), (highest - most).max(0.0));
    if below == 0.0 && above == 0.0 {
        return Ok(finding(true, &format!("{found}, {expected}")));
    }
    let (off, bound) = if below > above { (below, least) } else { (above, most) };
    let share = if bound == 0.0 || off.is_infinite() {
        String::new()
    } else {
        format!(" ({} %)", short(off / bound.abs() * 100.0))
    };
    let outside = list.iter().filter(|x| **x < least || **x > most).count();
    let of = if list.len() > 1 { format!(", {outside} of {} outside", list.len()) } else { String::new() };
    Ok(finding(false, &format!("{found}, {expected}: off by {}{share}{of}", short(off))))
}

/// Whether all numbers are in a range whose bounds are moved outwards by `share` of each, and whether they are in it as it is.
fn widened_range(list: &[f64], (least, most): (f64, f64), share: f64) -> Fallible<Map> {
    let words = format!("expected {} to {} ± {} %", short(least), short(most), short(share * 100.0));
    let mut map = range_check(list, least - share * least.abs(), most + share * most.abs(), &words)?;
    let strict = list.iter().all(|x| (least..=most).contains(x));
    if !strict {
        let found = map.get("found").map(ToString::to_string).unwrap_or_default();
        map.insert("found".into(), format!("{found}; not in {} to {} itself", short(least), short(most)).into());
    }
    map.insert(STRICT.into(), strict.into());
    Ok(map)
}

fn less(a: Dynamic, b: Dynamic) -> Fallible<Map> {
    let (a, b) = (numbers(&a)?, numbers(&b)?);
    let b = if b.len() == 1 { vec![b[0]; a.len()] } else { b };
    if a.len() != b.len() || a.is_empty() {
        return Err(format!("less compares {} numbers with {}", a.len(), b.len()).into());
    }
    let wrong = a.iter().zip(&b).filter(|(a, b)| a >= b).count();
    let words = match (a.as_slice(), b.as_slice()) {
        ([a], [b]) => format!("{} against {}", short(*a), short(*b)),
        _ => {
            let ratios = a.iter().zip(&b).map(|(a, b)| a / b).filter(|ratio| !ratio.is_nan());
            let ratios: Vec<f64> = ratios.collect();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("ratios {} to {}, {wrong} of {} not below 1", short(least), short(most), a.len())
        }
    };
    Ok(finding(wrong == 0, &words))
}

/// Whether the second sample differs from the first as required: by Welch's test at 5 %, and exactly where nothing is random.
fn significance(a: Array, b: Array, holds: fn(differs: bool, difference: f64) -> bool) -> Fallible<Map> {
    let mean = |list: Array| Ok::<Mean, Box<EvalAltResult>>(numbers(&list.into())?.into_iter().collect());
    let (a, b): (Mean, Mean) = (mean(a)?, mean(b)?);
    let found = Difference::welch(&a, &b).ok_or("a test takes two values of each kind at least")?;
    let (differs, how) = match found.test {
        Some(test) => (test.is_significant(), format!("p = {}", short(test.p))),
        None => (found.difference != 0.0, "nothing random varies".to_owned()),
    };
    let words = format!("mean {} against {}, {how}", short(a.mean()), short(b.mean()));
    Ok(finding(holds(differs, found.difference), &words))
}

/// Whether a list is monotonic; a step in the other direction may be as large as `slack`, a share of the list's range.
fn trend(list: &Array, slack: f64, sign: f64) -> Fallible<Map> {
    let list = list.iter().map(number).collect::<Fallible<Vec<f64>>>()?;
    let (Some(first), Some(last)) = (list.first(), list.last()) else { return Err("a trend of an empty list".into()) };
    if list.iter().any(|x| x.is_infinite()) {
        return Ok(finding(false, "a trend over values of which some are infinite"));
    }
    let range = list.iter().copied().fold(f64::MIN, f64::max) - list.iter().copied().fold(f64::MAX, f64::min);
    let back = list.windows(2).map(|step| (step[0] - step[1]) * sign).fold(0.0, f64::max);
    let holds = (last - first) * sign > 0.0 && back <= range * slack;
    let words = format!("from {} to {}, the largest step back is {}", short(*first), short(*last), short(back));
    Ok(finding(holds, &words))
}

fn finding(holds: bool, found: &str) -> Map {
    let mut map = Map::new();
    map.insert("holds".into(), holds.into());
    map.insert("found".into(), found.to_owned().into());
    map
}
