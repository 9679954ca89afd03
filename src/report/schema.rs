//! The JSON schemas (draft 2020-12) of what `--format json` prints: the files in `man/json`, which `tests/man.rs` derives
//! from the types of the results and compares.

/// Each schema by the name under which `toastctl help json` prints it.
pub const SCHEMAS: [(&str, &str); 7] = [
    ("inspect", include_str!("../../man/json/inspect.schema.json")),
    ("advise-threshold", include_str!("../../man/json/advise-threshold.schema.json")),
    ("check", include_str!("../../man/json/check.schema.json")),
    ("keys", include_str!("../../man/json/keys.schema.json")),
    ("retoast", include_str!("../../man/json/retoast.schema.json")),
    ("fleet", include_str!("../../man/json/fleet.schema.json")),
    ("retoast-progress", include_str!("../../man/json/retoast-progress.schema.json")),
];

/// The schema of this name.
pub fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub use derived::derived;

mod derived {
    use schemars::generate::SchemaSettings;
    use schemars::transform::RecursiveTransform;
    use schemars::{JsonSchema, Schema};
    use serde_json::Value;

    use crate::check::finding::{Checked, FindingReport};
    use crate::report::fleet::{self, TargetReport};
    use crate::report::retoast_progress::{self, Line};
    use crate::server::about::ServerReport;
    use crate::{advise, check, inspect, keys, retoast};

    /// The schemas as the types have them, by name.
    pub fn derived() -> [(&'static str, Schema); 7] {
        [
            ("inspect", root_schema::<inspect::document::Document>(inspect::result::SCHEMA)),
            ("advise-threshold", root_schema::<advise::result::Document>(advise::result::SCHEMA)),
            ("check", root_schema::<CheckLine>(check::finding::SCHEMA)),
            ("keys", root_schema::<keys::result::KeysDocument>(keys::result::SCHEMA)),
            ("retoast", root_schema::<retoast::result::Report>(retoast::result::SCHEMA)),
            ("fleet", root_schema::<TargetReport>(fleet::SCHEMA)),
            ("retoast-progress", root_schema::<Line<'static>>(retoast_progress::SCHEMA)),
        ]
    }

    fn root_schema<T: JsonSchema>(title: &str) -> Schema {
        let mut schema = SchemaSettings::draft2020_12()
            .for_serialize()
            .with_transform(RecursiveTransform(complete))
            .into_generator()
            .into_root_schema_for::<T>();
        schema.insert("title".to_owned(), title.into());
        schema
    }

    /// An object has no other fields, and a description is one paragraph.
    fn complete(schema: &mut Schema) {
        if schema.get("properties").is_some() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
        schema.remove("format");
        // what is left out when it is not known is never null
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.cloned().unwrap_or_default();
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            if required.iter().any(|required| required == name.as_str()) {
                continue;
            }
            for kinds in ["type", "anyOf"] {
                let kinds = property.get_mut(kinds).and_then(Value::as_array_mut);
                kinds.into_iter().for_each(|kinds| kinds.retain(|kind| !is_null(kind)));
            }
        }
        if let Some(text) = schema.get("description").and_then(|text| text.as_str()) {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            schema.insert("description".to_owned(), text.into());
        }
    }

    fn is_null(kind: &Value) -> bool {
        kind == "null" || kind.get("type").is_some_and(|kind| kind == "null")
    }

    /// What `toastctl check` prints: with --format json one document; with --format jsonl one finding a line, each
    /// with the field schema. Fields are only ever added.
    #[derive(JsonSchema)]
    #[schemars(untagged)]
    #[allow(dead_code, reason = "it is written piece by piece")]
    enum CheckLine {
        Document {
            #[schemars(extend("const" = check::finding::SCHEMA))]
            schema: &'static str,
            findings: Vec<FindingReport>,
            relations: Vec<Checked>,
            /// The server, for live sources.
            #[serde(skip_serializing_if = "Option::is_none")]
            server: Option<ServerReport>,
        },
        Line {
            #[schemars(extend("const" = check::finding::SCHEMA))]
            schema: &'static str,
            #[schemars(flatten)]
            finding: FindingReport,
        },
    }
}
