//! The engine of `holdover reproduce`: repeats papers' experiments and judges their claims.
//!
//! A [`catalogue`] is a directory with one `paper.toml` (experiments, published numbers, claims) and the scenario files of the experiments,
//! which are ordinary scenarios with a `[sweep]`. Each scenario is swept once; [`results`] holds the results, [`script`] evaluates a
//! claim's check on them, [`judge`] gives the verdict, and [`page`] writes the report.

pub mod catalogue;
#[cfg(test)]
mod effect_tests;
pub mod figures;
pub mod fit;
pub mod judge;
mod known;
pub mod matrix;
pub mod numbers;
pub mod open;
#[cfg(test)]
mod open_tests;
pub mod page;
pub mod results;
pub mod sample;
pub mod script;
pub mod setting;
pub mod survey;
mod survey_run;
mod tally;
#[cfg(test)]
mod tests;
pub mod together;
pub mod trial;
pub mod work;
#[cfg(test)]
mod worlds;
