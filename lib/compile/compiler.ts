/** `compiler`: whether a capture runs, forgetting captures, and keeping functions out of them. */
export { type DisableOptions, disable, isCompiling, reset } from './compile.js';
