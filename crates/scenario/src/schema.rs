//! The JSON schema of scenario files, for editors and other programs.

use schemars::generate::SchemaSettings;

use crate::file::ScenarioFile;

/// The JSON schema (draft 2020-12) of a scenario file, as a text with a newline at the end.
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ScenarioFile>();
    // A schema is made of texts, numbers and lists: it can always be written.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
