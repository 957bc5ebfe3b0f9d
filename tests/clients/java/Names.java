import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** What Kafka makes of subjects and rules. Lines in: a subject in hexadecimal, a tab, rules. Out: both names so. */
public class Names {
    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    public static void main(String[] args) {
        var lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\t", -1);
            String name = new X500Principal(HexFormat.of().parseHex(parts[0])).getName();
            String principal;
            try {
                principal = "=" + SslPrincipalMapper.fromRules(parts[1]).getName(name);
            } catch (Exception error) {
                principal = error.getClass().getSimpleName();
            }
            System.out.println(hex(name) + "\t" + hex(principal));
        }
    }
}
