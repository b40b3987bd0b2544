//! Settings: one value per open input of a paper.

use std::collections::BTreeMap;
use std::hash::Hasher;

use holdover_scenario::{ErrorKind, Override, ScenarioError};
use serde::{Deserialize, Serialize};
use toml::{Spanned, Value};

use super::open::{File, Open, error, words};

/// A value for each open input, by name. Other inputs keep the values of the scenarios.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(pub BTreeMap<String, Value>);

/// A fitted setting with its provenance: the file `fitted.toml` in a paper's directory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fitted {
    /// The setting.
    pub setting: Setting,
    /// The search that found it.
    pub search: Search,
}

/// A search for a setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The command that repeats it.
    pub command: String,
    /// The number of settings tried.
    pub tried: usize,
    /// The number of printed numbers compared.
    pub numbers: usize,
    /// The number of these within a tenth.
    pub within_a_tenth: usize,
    /// The loss at the setting, from 0 (every number met) to 1.
    pub loss: f64,
    /// The loss of the scenarios as written.
    pub loss_as_written: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    setting: BTreeMap<Spanned<String>, Spanned<Value>>,
    search: Search,
}

impl Setting {
    /// The setting at these positions from 0 to 1, one for each input.
    pub fn at(inputs: &[Open], places: &[f64]) -> Self {
        Self(inputs.iter().zip(places).map(|(input, &place)| (input.name.clone(), input.at(place))).collect())
    }

    /// Its changes to a scenario.
    pub fn overrides(&self, inputs: &[Open], scenario: &str) -> Vec<Override> {
        let set = inputs.iter().filter(|input| input.applies_to(scenario));
        set.filter_map(|input| Some(input.overrides(self.0.get(&input.name)?))).flatten().collect()
    }

    /// `window = 158 kB, zero window = freeze`.
    pub fn in_words(&self) -> String {
        if self.0.is_empty() {
            return "as the scenarios are written".to_owned();
        }
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} = {}", words(value))).collect();
        parts.join(", ")
    }
}

/// A short hash of a list of changes: settings with the same changes to a scenario share its runs.
pub(super) fn fingerprint(overrides: &[Override]) -> String {
    let mut hasher = siphasher::sip::SipHasher24::new();
    for change in overrides {
        hasher.write(change.to_string().as_bytes());
        hasher.write_u8(0);
    }
    format!("{:016x}", hasher.finish())
}

impl Fitted {
    /// Reads `fitted.toml`.
    pub(super) fn read(file: File<'_>, inputs: &[Open]) -> Result<Self, ScenarioError> {
        let form: Form = toml::from_str(file.text).map_err(|wrong| {
            let location = holdover_scenario::Location::of(file.name, file.text, wrong.span().unwrap_or(0..0));
            error(ErrorKind::Syntax, "", wrong.message().to_owned(), location)
        })?;
        let mut setting = BTreeMap::new();
        for (name, value) in form.setting {
            let field = format!("setting.{}", name.get_ref());
            let Some(input) = inputs.iter().find(|input| input.name == *name.get_ref()) else {
                let message = "the paper's file has no open input of this name";
                return Err(error(ErrorKind::UnknownName, &field, message, file.place(&name)));
            };
            if input.place_of(value.get_ref()).is_none() {
                let message = format!("{} is not among {}", value.get_ref(), input.in_words());
                return Err(error(ErrorKind::BadValue, &field, message, file.place(&value)));
            }
            setting.insert(name.into_inner(), value.into_inner());
        }
        Ok(Self { setting: Setting(setting), search: form.search })
    }

    /// The content of `fitted.toml`.
    pub fn to_toml(&self) -> String {
        let table = toml::to_string_pretty(self).unwrap_or_default();
        format!(
            "# The setting of what the paper leaves open at which its printed numbers fit best, all at once. Made by\n#\n#     {}\n\n{table}",
            self.search.command
        )
    }
}
