/** Names of choices, in every report and comparison. */
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

/** `A` of choice 0; past Z its number, counted from 1. */
export const letter = (choice: number): string => LETTERS[choice] ?? String(choice + 1);
