/** Prints what a check found, and lets the process fail; `inOrder` is said where there is nothing. */
export function reportFindings(findings: readonly string[], inOrder: string): void {
  for (const finding of findings) console.error(finding);
  if (findings.length > 0) process.exitCode = 1;
  else console.log(inOrder);
}
