//! `config`, `completions` and `man`: generated reference, for editors and shells.

use super::failure::ToolError;
use crate::edition::Edition;
use crate::service::cli::{Cli, CompletionsArgs, DefaultsArgs, ManArgs};
use crate::service::schema::json_schema;
use crate::service::settings::DEFAULTS;
use std::io::Write;

/// Prints the default configuration, or its schema.
pub fn config(args: &DefaultsArgs) -> Result<(), ToolError> {
    let text = match args.schema {
        true => format!("{:#}\n", json_schema()),
        false => DEFAULTS.to_owned(),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Prints a shell's completions.
pub(crate) fn completions(args: &CompletionsArgs, editions: &[Edition]) -> Result<(), ToolError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::of_program(editions), "huntd", &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}

/// Prints the first manual page, or writes all of them into a folder.
pub(crate) fn man(args: &ManArgs, editions: &[Edition]) -> Result<(), ToolError> {
    // `huntd help` has no page of its own.
    let command = Cli::of_program(editions).disable_help_subcommand(true);
    let Some(directory) = &args.directory else {
        return Ok(clap_mangen::Man::new(command).render(&mut std::io::stdout())?);
    };
    let cannot =
        |error| ToolError::Usage(format!("cannot write to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    clap_mangen::generate_to(command, directory).map_err(cannot)
}
