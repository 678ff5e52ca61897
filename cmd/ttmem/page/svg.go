package page

import "fmt"

// SVGHead begins a picture of so many pixels. The style and, for dark pages, dark are added
// to what all pictures share.
func SVGHead(width, height int, style, dark, title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d">
<style>
svg { font: 12px system-ui, sans-serif; background: #fff; color: #1c2530 }
text { fill: currentColor }
.title { font-size: 18px; font-weight: 600 }
.region { font-size: 14px; font-weight: 600 }
.faint { opacity: .65 }
%[3]s@media (prefers-color-scheme: dark) { svg { background: #14181f; color: #e4e9f0 } %[4]s}
</style>
<text class="title" x="24" y="32">%[5]s</text>
`, width, height, style, dark, title)
}
