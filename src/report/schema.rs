//! The JSON schemas (draft 2020-12) of what `--format json` prints: the files in `man/json`, which `tests/man.rs` derives
//! from the types of the results and compares.

/// Each schema by the name under which `toastctl help json` prints it.
pub const SCHEMAS: [(&str, &str); 7] = [
    ("inspect", include_str!("../../man/json/inspect.schema.json")),
    ("overview", include_str!("../../man/json/overview.schema.json")),
    ("advise-threshold", include_str!("../../man/json/advise-threshold.schema.json")),
    ("check", include_str!("../../man/json/check.schema.json")),
    ("explain", include_str!("../../man/json/explain.schema.json")),
    ("keys", include_str!("../../man/json/keys.schema.json")),
    ("retoast", include_str!("../../man/json/retoast.schema.json")),
];

/// The schema of this name.
pub fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(feature = "internals")]
pub use derived::derived;

#[cfg(feature = "internals")]
mod derived {
    use schemars::generate::SchemaSettings;
    use schemars::transform::RecursiveTransform;
    use schemars::{JsonSchema, Schema};
    use serde_json::Value;

    use crate::check::finding::{Checked, FindingReport};
    use crate::report::overview::Summary;
    use crate::server::about::ServerReport;
    use crate::{advise, check, inspect, keys, retoast};

    /// The schemas as the types have them, by name.
    pub fn derived() -> [(&'static str, Schema); 7] {
        [
            ("inspect", of::<inspect::result::Report>("toastctl.inspect/1")),
            ("overview", of::<Overview>("toastctl.inspect/2")),
            ("advise-threshold", of::<advise::result::Report>("toastctl.advise/1")),
            ("check", of::<CheckOutput>("toastctl.check/1")),
            ("explain", of::<advise::explain::result::Explanation>("toastctl.explain/1")),
            ("keys", of::<keys::result::KeysReport>("toastctl.keys/1")),
            ("retoast", of::<retoast::result::Report>("toastctl.retoast/1")),
        ]
    }

    fn of<T: JsonSchema>(title: &str) -> Schema {
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
        let required = schema.get("required").cloned().unwrap_or_default();
        let is_required = |name: &String| {
            required.as_array().is_some_and(|all| all.iter().any(|one| one == name.as_str()))
        };
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (_, property) in properties.into_iter().flatten().filter(|(name, _)| !is_required(name))
        {
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

    /// What `toastctl inspect --format json` prints of all tables, of several, and of the parts of one: an overview. Sizes are
    /// bytes; a figure that is not known is null. Each figure that a sample may have given is an estimate with the ends of its
    /// 95 % confidence interval, which are the estimate itself where it was counted. Relations come as they are done. With
    /// --format jsonl each line is one relation, with the field schema beside its own, and the last line has schema and the
    /// fields behind relations. One table's report, and with --details those of several, are toastctl.inspect/1.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "it is written piece by piece")]
    struct Overview {
        #[schemars(extend("const" = inspect::overview::SCHEMA))]
        schema: &'static str,
        /// The server, for live sources.
        server: Option<ServerReport>,
        relations: Vec<inspect::overview::RelationLine>,
        #[schemars(flatten)]
        summary: Summary<'static>,
    }

    /// What `toastctl check` prints: with --format json one document; with --format jsonl one finding a line, each
    /// with the field schema. Fields are only ever added.
    #[derive(JsonSchema)]
    #[schemars(untagged)]
    #[allow(dead_code, reason = "it is written piece by piece")]
    enum CheckOutput {
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
