//! Patterns for names of relations, as in psql's `\d` commands (`patternToSQLRegex` in `string_utils.c`).

/// Characters with a special meaning in regular expressions, but not in a quoted part.
const REGEX_SPECIAL: &str = "|*+?()[]{}.^$\\";

/// One dot-separated part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternPart {
    /// An anchored regular expression for the operator `~`, as psql writes it.
    pub regex: String,
    /// The name itself, folded and unquoted, if the part matches only that name.
    pub literal: Option<String>,
}

impl PatternPart {
    /// Whether the part is `*`, which needs no condition.
    pub fn matches_all(&self) -> bool {
        self.regex == "^(.*)$"
    }
}

/// A pattern for names of relations: `name`, `schema.name` or `database.schema.name`.
///
/// Letters outside double quotes are folded to lower case; `*` matches any characters and `?` a single one; inside
/// double quotes, every character stands for itself. Outside quotes, other special characters of regular expressions
/// keep their meaning, as in psql, except `$` and `[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    /// The database, if the pattern names one.
    pub database: Option<String>,
    /// The schema; without one, only relations in the search path match.
    pub schema: Option<PatternPart>,
    pub name: PatternPart,
}

/// A SQL condition and the values of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternCondition {
    /// The condition; its parameters are written as `$n`.
    pub sql: String,
    /// The parameters' values, beginning with the first number that was requested.
    pub parameters: Vec<String>,
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It has more than three parts, or an open quote. An empty part matches nothing, as in psql.
    pub fn parse(pattern: &str) -> Result<NamePattern, String> {
        let mut parts = vec![PartBuilder::default()];
        let mut quoted = false;
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '.' && !quoted {
                parts.push(PartBuilder::default());
                continue;
            }
            let Some(part) = parts.last_mut() else { break };
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    part.data('"');
                }
                '"' => quoted = !quoted,
                _ if quoted => part.quoted(c),
                '*' => part.special(".*"),
                '?' => part.special("."),
                '$' => part.quoted(c),
                // `[]` is more likely part of an array type's name than a bracket expression.
                '[' if chars.peek() == Some(&']') => part.quoted(c),
                _ if REGEX_SPECIAL.contains(c) => part.special(c.encode_utf8(&mut [0; 4])),
                _ => part.data(c.to_ascii_lowercase()),
            }
        }
        if quoted {
            return Err(format!("unterminated quoted string: {pattern}"));
        }
        let mut parts = parts.into_iter().rev();
        let name = parts.next();
        let schema = parts.next();
        let database = parts.next();
        if parts.next().is_some() {
            return Err(format!("improper qualified name (too many dotted names): {pattern}"));
        }
        Ok(NamePattern {
            database: database.map(|part| part.text),
            schema: schema.map(PartBuilder::finish),
            name: name.unwrap_or_default().finish(),
        })
    }

    /// The schema and name, if the pattern can match only one relation.
    pub fn literal(&self) -> Option<(Option<&str>, &str)> {
        let name = self.name.literal.as_deref()?;
        match &self.schema {
            None => Some((None, name)),
            Some(schema) => Some((Some(schema.literal.as_deref()?), name)),
        }
    }

    /// The condition that `schema_column` and `name_column` match the pattern; `visible` is the condition used if no
    /// schema is given. Parameters are numbered from `first_parameter`.
    pub fn condition(
        &self,
        schema_column: &str,
        name_column: &str,
        visible: &str,
        first_parameter: usize,
    ) -> PatternCondition {
        let mut condition = PatternCondition { sql: String::new(), parameters: Vec::new() };
        let mut conjuncts = Vec::new();
        let mut constrain = |column: &str, part: &PatternPart| {
            if !part.matches_all() {
                let number = first_parameter + condition.parameters.len();
                condition.parameters.push(part.regex.clone());
                conjuncts.push(format!(
                    "{column} OPERATOR(pg_catalog.~) ${number}::pg_catalog.text COLLATE pg_catalog.default"
                ));
            }
        };
        constrain(name_column, &self.name);
        match &self.schema {
            Some(schema) => constrain(schema_column, schema),
            None => conjuncts.push(visible.to_owned()),
        }
        if conjuncts.is_empty() {
            conjuncts.push("true".to_owned());
        }
        condition.sql = conjuncts.join(" AND ");
        condition
    }
}

/// A part that is being parsed.
#[derive(Default)]
struct PartBuilder {
    regex: String,
    /// The characters without their escapes: the name, if `pattern` is false.
    text: String,
    /// Whether any character is special.
    pattern: bool,
}

impl PartBuilder {
    /// Adds a character as it is.
    fn data(&mut self, c: char) {
        self.regex.push(c);
        self.text.push(c);
    }

    /// Adds a character that stands for itself, escaped if necessary.
    fn quoted(&mut self, c: char) {
        if REGEX_SPECIAL.contains(c) {
            self.regex.push('\\');
        }
        self.data(c);
    }

    fn special(&mut self, regex: &str) {
        self.regex.push_str(regex);
        self.text.push_str(regex);
        self.pattern = true;
    }

    fn finish(self) -> PatternPart {
        let literal = (!self.pattern).then_some(self.text);
        PatternPart { regex: format!("^({})$", self.regex), literal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(pattern: &str) -> (Option<String>, String) {
        let parsed = NamePattern::parse(pattern).unwrap();
        (parsed.schema.map(|part| part.regex), parsed.name.regex)
    }

    #[test]
    fn patterns_become_the_regular_expressions_of_psql() {
        let name = |pattern: &str| parts(pattern).1;
        assert_eq!(name("Orders"), "^(orders)$");
        assert_eq!(name("\"Orders\""), "^(Orders)$");
        assert_eq!(name("ord*"), "^(ord.*)$");
        assert_eq!(name("ord?rs"), "^(ord.rs)$");
        assert_eq!(name("\"ord*?\""), "^(ord\\*\\?)$");
        assert_eq!(name("a\"B.\"\"c\"D"), "^(aB\\.\"cd)$");
        assert_eq!(name("a$b"), "^(a\\$b)$");
        assert_eq!(name("t[]"), "^(t\\[])$");
        assert_eq!(name("t[0-9]|Ü"), "^(t[0-9]|Ü)$");
        assert_eq!(parts("Pub*.\"A.b\""), (Some("^(pub.*)$".into()), "^(A\\.b)$".into()));
    }

    #[test]
    fn a_literal_name_is_known_as_such() {
        let literal = |pattern: &str| {
            let parsed = NamePattern::parse(pattern).unwrap();
            parsed.literal().map(|(schema, name)| (schema.map(str::to_owned), name.to_owned()))
        };
        assert_eq!(literal("Public.T"), Some((Some("public".into()), "t".into())));
        assert_eq!(literal("\"a*\""), Some((None, "a*".into())));
        assert_eq!(literal("a$1"), Some((None, "a$1".into())));
        assert_eq!(literal("a*"), None);
        assert_eq!(literal("*.t"), None);
        assert_eq!(literal("a+"), None);
    }

    #[test]
    fn a_database_is_kept_and_more_dots_are_refused() {
        let parsed = NamePattern::parse("\"My Db\".public.t").unwrap();
        assert_eq!(parsed.database.as_deref(), Some("My Db"));
        let refused = NamePattern::parse("a.b.c.d").unwrap_err();
        assert_eq!(refused, "improper qualified name (too many dotted names): a.b.c.d");
        let open = NamePattern::parse("a.\"b").unwrap_err();
        assert_eq!(open, "unterminated quoted string: a.\"b");
        for (empty, named) in [("", (None, "")), (".a", (Some(""), "a")), ("a.", (Some("a"), ""))] {
            assert_eq!(NamePattern::parse(empty).unwrap().literal(), Some(named), "{empty}");
        }
    }

    #[test]
    fn conditions_hold_the_names_only_as_parameters() {
        let condition = |pattern: &str| {
            NamePattern::parse(pattern).unwrap().condition("n.nspname", "c.relname", "visible", 2)
        };
        let named = condition("s'x.t*");
        assert_eq!(
            named.sql,
            "c.relname OPERATOR(pg_catalog.~) $2::pg_catalog.text COLLATE pg_catalog.default AND \
             n.nspname OPERATOR(pg_catalog.~) $3::pg_catalog.text COLLATE pg_catalog.default"
        );
        assert_eq!(named.parameters, ["^(t.*)$", "^(s'x)$"]);
        assert_eq!(condition("*").sql, "visible");
        assert_eq!(
            condition("*.*"),
            PatternCondition { sql: "true".into(), parameters: Vec::new() }
        );
    }

    proptest! {
        #[test]
        fn any_quoted_name_is_its_own_literal(name in "[^\\x00]{1,40}") {
            let quoted = format!("\"{}\"", name.replace('"', "\"\""));
            let parsed = NamePattern::parse(&quoted).unwrap();
            prop_assert_eq!(parsed.literal(), Some((None, name.as_str())));
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(text in ".*") {
            let _ = NamePattern::parse(&text);
        }
    }
}
