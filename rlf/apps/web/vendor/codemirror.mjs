// The parts of CodeMirror 6 that the editor uses, as one module.
export {EditorState, StateEffect, StateField, Compartment, Prec} from "@codemirror/state";
export {
  EditorView, keymap, lineNumbers, drawSelection, highlightActiveLine, highlightActiveLineGutter, hoverTooltip,
} from "@codemirror/view";
export {history, historyKeymap, defaultKeymap, indentWithTab} from "@codemirror/commands";
export {
  HighlightStyle, syntaxHighlighting, indentUnit, foldGutter, foldKeymap, bracketMatching,
} from "@codemirror/language";
export {lintGutter, lintKeymap, setDiagnostics, nextDiagnostic} from "@codemirror/lint";
export {autocompletion, completionKeymap, closeBrackets} from "@codemirror/autocomplete";
export {search, searchKeymap, highlightSelectionMatches} from "@codemirror/search";
export {yaml} from "@codemirror/lang-yaml";
export {tags} from "@lezer/highlight";
