//! What is behind `holdover reproduce`: papers' experiments run anew, and their claims judged.
//!
//! A [`catalogue`] is a directory with one `paper.toml` (experiments, published numbers, claims) and the scenario files of the
//! experiments, which are ordinary scenarios with a `[sweep]`. Each scenario is swept once; [`results`] has what came of it,
//! [`script`] lets a claim ask about it, [`judge`] says whether the claim holds, and [`page`] tells it to people.

pub(crate) mod catalogue;
pub(crate) mod figures;
pub(crate) mod judge;
pub(crate) mod page;
pub(crate) mod results;
pub(crate) mod script;
mod tally;
#[cfg(test)]
mod tests;
